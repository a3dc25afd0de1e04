// The stand-in for NVRTC: compiles CUDA source with the system's C++ compiler into an image for the stand-in driver.

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "image.h"
#include "scan.h"

extern char** environ;

namespace {

using namespace millrace_sim;

enum Result : int {
    success = 0,
    out_of_memory = 1,
    creation_failure = 2,
    invalid_input = 3,
    invalid_program = 4,
    invalid_option = 5,
    compilation = 6,
    no_expressions_after = 8,
    no_names_before = 9,
    expression_invalid = 10,
    internal_error = 11,
};

struct Program {
    std::string source, name;
    std::vector<std::pair<std::string, std::string>> headers;
    std::vector<NameExpression> expressions;
    std::string log, image;
    bool compiled = false;
    bool real_architecture = false;  // sm_*: there is a cubin
};

struct Options {
    std::vector<std::string> preprocessor;  // -D, -U, -I
    std::string standard = "c++17";
    int architecture = 750;
    bool specific = false;  // sm_90a
    bool real = false;
    std::vector<std::string> pre_includes;
};

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

// The value of an option that is written as NAME=VALUE or NAME VALUE.
bool value_of(const std::string& option, std::initializer_list<const char*> names, int count, const char* const* all,
              int* index, std::string* value) {
    for (const char* name : names) {
        std::string with = std::string(name) + "=";
        if (starts_with(option, with.c_str())) {
            *value = option.substr(with.size());
            return true;
        }
        if (option == name && *index + 1 < count) {
            *value = all[++*index];
            return true;
        }
    }
    return false;
}

bool parse_architecture(const std::string& text, Options* options) {
    unsigned number = 0;
    char suffix = 0;
    options->real = starts_with(text, "sm_");
    const char* digits = text.c_str() + (options->real ? 3 : 8);
    if (!options->real && !starts_with(text, "compute_")) return false;
    int fields = sscanf(digits, "%u%c", &number, &suffix);
    static const unsigned known[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
    bool found = false;
    for (unsigned each : known) found = found || each == number;
    if (fields < 1 || !found || (suffix && suffix != 'a' && suffix != 'f')) return false;
    options->architecture = static_cast<int>(number) * 10;
    options->specific = suffix != 0;
    return true;
}

bool is_flag(const std::string& option) {
    static const char* flags[] = {"--device-as-default-execution-space",
                                  "-default-device",
                                  "--generate-line-info",
                                  "-lineinfo",
                                  "--device-debug",
                                  "-G",
                                  "--use_fast_math",
                                  "-use_fast_math",
                                  "--extra-device-vectorization",
                                  "-extra-device-vectorization",
                                  "--restrict",
                                  "-restrict",
                                  "--disable-warnings",
                                  "-w",
                                  "--device-int128",
                                  "-device-int128",
                                  "--minimal",
                                  "-minimal",
                                  "--resource-usage",
                                  "-res-usage",
                                  "--no-source-include",
                                  "-no-source-include",
                                  "--relocatable-device-code=false",
                                  "-rdc=false",
                                  "--display-error-number",
                                  "-err-no"};
    for (const char* flag : flags)
        if (option == flag) return true;
    return false;
}

bool is_boolean(const std::string& option) {
    for (const char* name : {"ftz", "prec-sqrt", "prec-div", "fmad", "builtin-move-forward", "builtin-initializer-list",
                             "modify-stack-limit"})
        for (const char* dash : {"--", "-"})
            for (const char* value : {"=true", "=false"})
                if (option == std::string(dash) + name + value) return true;
    return false;
}

Result parse_options(int count, const char* const* all, Options* options, std::string* log) {
    for (int i = 0; i < count; i++) {
        std::string option = all[i] ? all[i] : "", value;
        if (is_flag(option) || is_boolean(option)) continue;
        if (value_of(option, {"--gpu-architecture", "-arch", "--gpu-name"}, count, all, &i, &value)) {
            if (parse_architecture(value, options)) continue;
            *log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
            return invalid_option;
        }
        if (value_of(option, {"--std", "-std"}, count, all, &i, &value)) {
            for (const char* known : {"c++11", "c++14", "c++17", "c++20"})
                if (value == known) options->standard = value, value.clear();
            if (value.empty()) continue;
        } else if (value_of(option, {"--define-macro", "-D"}, count, all, &i, &value)) {
            options->preprocessor.push_back("-D" + value);
            continue;
        } else if (value_of(option, {"--undefine-macro", "-U"}, count, all, &i, &value)) {
            options->preprocessor.push_back("-U" + value);
            continue;
        } else if (value_of(option, {"--include-path", "-I"}, count, all, &i, &value)) {
            options->preprocessor.push_back("-I" + value);
            continue;
        } else if (value_of(option, {"--pre-include", "-include"}, count, all, &i, &value)) {
            options->pre_includes.push_back(value);
            continue;
        } else if (value_of(option,
                            {"--maxrregcount", "-maxrregcount", "--ptxas-options", "-Xptxas", "--diag-suppress",
                             "-diag-suppress", "--diag-error", "-diag-error", "--diag-warn", "-diag-warn", "--dopt",
                             "-dopt", "--optimization-info", "-opt-info", "--split-compile", "-split-compile"},
                            count, all, &i, &value)) {
            continue;
        } else if (option.size() > 2 &&
                   (starts_with(option, "-D") || starts_with(option, "-I") || starts_with(option, "-U"))) {
            options->preprocessor.push_back(option);
            continue;
        }
        *log = "nvrtc: error: unrecognized option " + option + " found\n";
        return invalid_option;
    }
    return success;
}

// A folder that goes when the compilation is over.
struct Folder {
    std::string path;
    std::vector<std::string> files, folders;
    Folder() {
        const char* base = getenv("TMPDIR");
        std::string pattern = std::string(base && *base ? base : "/tmp") + "/millrace-sim-XXXXXX";
        if (mkdtemp(&pattern[0])) path = pattern;
    }
    ~Folder() {
        for (const std::string& file : files) unlink(file.c_str());
        for (size_t i = folders.size(); i-- > 0;) rmdir(folders[i].c_str());
        if (!path.empty()) rmdir(path.c_str());
    }
    std::string add(const std::string& name) {
        files.push_back(path + "/" + name);
        return files.back();
    }
    bool write(const std::string& name, const std::string& content) {
        for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
            std::string folder = path + "/" + name.substr(0, slash);
            if (mkdir(folder.c_str(), 0700) == 0) folders.push_back(folder);
        }
        FILE* file = fopen(add(name).c_str(), "wb");
        if (!file) return false;
        bool ok = fwrite(content.data(), 1, content.size(), file) == content.size();
        return fclose(file) == 0 && ok;
    }
};

bool read_file(const std::string& path, std::string* content) {
    FILE* file = fopen(path.c_str(), "rb");
    if (!file) return false;
    content->clear();
    char part[65536];
    for (size_t n; (n = fread(part, 1, sizeof(part), file)) > 0;) content->append(part, n);
    fclose(file);
    return true;
}

std::vector<std::string> compiler() {
    std::vector<std::string> words;
    const char* text = getenv("CXX");
    std::string all = text && *text ? text : "c++";
    for (size_t begin = 0; begin < all.size();) {
        size_t end = all.find(' ', begin);
        if (end == std::string::npos) end = all.size();
        if (end > begin) words.push_back(all.substr(begin, end - begin));
        begin = end + 1;
    }
    return words;
}

// Runs the compiler in `folder`; its messages are appended to the log without the folder's name.
bool run(Folder& folder, const std::vector<std::string>& arguments, std::string* log) {
    std::vector<std::string> words = compiler();
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv, env;
    for (std::string& word : words) argv.push_back(&word[0]);
    argv.push_back(nullptr);
    // Messages in English, whatever the user speaks: tests read them.
    std::string locale = "LC_ALL=C";
    for (char** at = environ; *at; at++)
        if (strncmp(*at, "LC_ALL=", 7)) env.push_back(*at);
    env.push_back(&locale[0]);
    env.push_back(nullptr);
    std::string messages = folder.path + "/messages";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, messages.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    pid_t child;
    int code = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), env.data());
    posix_spawn_file_actions_destroy(&actions);
    if (code) {
        *log += "nvrtc: error: cannot start the C++ compiler " + words[0] + ": " + strerror(code) + "\n";
        return false;
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    std::string text, prefix = folder.path + "/";
    read_file(messages, &text);
    unlink(messages.c_str());
    for (size_t at = 0; (at = text.find(prefix, at)) != std::string::npos;) text.erase(at, prefix.size());
    *log += text;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::vector<std::string> code_options(bool observed) {
    std::vector<std::string> options = {
        // Unrolled loops have constant indices, which need no check: with checks, twice as fast as -O2.
        "-O3", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-mfma", "-w", "-fno-math-errno",
        "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-fno-stack-protector", "-fcf-protection=none",
        "-fno-asynchronous-unwind-tables", "-fno-gnu-unique", "-fno-semantic-interposition",
        // Registers that nobody has written hold a pattern, not a lucky zero.
        "-ftrivial-auto-var-init=pattern"};
    if (enabled("MILLRACE_SIM_CHECKS", true)) {
        // The runtime has the handlers; no library of the compiler is linked.
        options.push_back("-fsanitize=alignment,bounds,shift-exponent,integer-divide-by-zero,float-cast-overflow");
        options.push_back("-fno-sanitize-recover=all");
    }
    if (observed) {
        // Accesses as they are written, and their lines for messages.
        options.insert(options.end(), {"-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0",
                                       "-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-store-merging", "-g1"});
    }
    return options;
}

// Puts the source and its headers into the folder; the result is the name of the source there.
bool write_sources(Folder& folder, Program* program, std::string* name) {
    *name = program->name.empty() ? "default_program" : program->name;
    for (char& c : *name)
        if (c == '/') c = '_';
    bool written = folder.write(*name, program->source);
    for (const auto& header : program->headers) {
        if (header.first.find("..") != std::string::npos || starts_with(header.first, "/")) {
            program->log = "nvrtc: error: the simulator takes relative names of headers, not " + header.first + "\n";
            return false;
        }
        written = written && folder.write(header.first, header.second);
    }
    if (!written) program->log = "nvrtc: error: cannot write to " + folder.path + "\n";
    return written;
}

bool preprocess(Folder& folder, Program* program, const Options& options, std::string* text) {
    std::string name, headers = own_folder() + "/include", expanded = folder.add("expanded.ii");
    if (!write_sources(folder, program, &name)) return false;
    std::vector<std::string> arguments = {"-E",
                                          "-x",
                                          "c++",
                                          "-std=" + options.standard,
                                          "-nostdinc",
                                          "-nostdinc++",
                                          "-I" + folder.path,
                                          "-isystem",
                                          headers,
                                          "-include",
                                          headers + "/shim.h",
                                          "-D__CUDA_ARCH__=" + std::to_string(options.architecture)};
    if (options.specific)
        arguments.push_back("-D__CUDA_ARCH_FEAT_SM" + std::to_string(options.architecture / 10) + "_ALL=1");
    arguments.insert(arguments.end(), options.preprocessor.begin(), options.preprocessor.end());
    for (const std::string& file : options.pre_includes) {
        arguments.push_back("-include");
        arguments.push_back(file);
    }
    arguments.insert(arguments.end(), {"-o", expanded, folder.path + "/" + name});
    return run(folder, arguments, &program->log) && read_file(expanded, text);
}

// Compiles and links apart: given -fsanitize, the linking compiler would add the sanitizers' libraries.
bool build(Folder& folder, Program* program, const Options& options, bool observed, std::string* library_bytes) {
    std::string object = folder.add("kernels.o"), library = folder.add("kernels.so");
    std::vector<std::string> arguments = {"-c", "-x", "c++-cpp-output", "-std=" + options.standard};
    std::vector<std::string> code = code_options(observed);
    arguments.insert(arguments.end(), code.begin(), code.end());
    arguments.insert(arguments.end(), {"-o", object, folder.path + "/kernels.ii"});
    if (!run(folder, arguments, &program->log)) return false;
    arguments = {"-shared", "-Wl,-Bsymbolic", "-Wl,--as-needed", "-o", library, object, "-lm"};
    return run(folder, arguments, &program->log) && read_file(library, library_bytes);
}

Result compile(Program* program, const Options& options) {
    Folder folder;
    if (folder.path.empty()) {
        program->log = "nvrtc: error: cannot make a temporary folder\n";
        return internal_error;
    }
    bool observed = observed_by_request();
    std::string text;
    if (!preprocess(folder, program, options, &text)) return compilation;
    ScanResult scanned = scan(text, program->expressions, observed);
    if (!scanned.error.empty()) {
        std::string message = scanned.error;
        if (starts_with(message, folder.path.c_str())) message.erase(0, folder.path.size() + 1);
        program->log += message + "\n";
        return compilation;
    }
    if (!folder.write("kernels.ii", scanned.source)) return internal_error;
    if (!build(folder, program, options, observed, &text)) return compilation;

    ImageHeader header{};
    memcpy(header.magic, image_magic, sizeof(header.magic));
    header.abi = abi_version;
    header.dynamic_shared_alignment = scanned.dynamic_alignment;
    header.settings = simulator_settings();
    header.bytes = text.size();
    header.object_hash = image_hash(text.data(), text.size());
    header.header_hash = image_header_hash(header);
    program->image.assign(reinterpret_cast<const char*>(&header), sizeof(header));
    program->image += text;
    program->real_architecture = options.real;
    return success;
}

}  // namespace

#define MILLRACE_API extern "C" __attribute__((visibility("default"))) int

MILLRACE_API nvrtcVersion(int* major, int* minor) {
    if (!major || !minor) return invalid_input;
    *major = 13, *minor = 0;
    return success;
}

MILLRACE_API nvrtcGetNumSupportedArchs(int* count) {
    *count = 12;
    return success;
}
MILLRACE_API nvrtcGetSupportedArchs(int* architectures) {
    static const int all[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
    memcpy(architectures, all, sizeof(all));
    return success;
}

MILLRACE_API nvrtcCreateProgram(Program** program, const char* source, const char* name, int header_count,
                                const char* const* headers, const char* const* include_names) {
    if (!program || !source || header_count < 0 || (header_count && (!headers || !include_names))) return invalid_input;
    *program = new Program();
    (*program)->source = source;
    (*program)->name = name ? name : "";
    for (int i = 0; i < header_count; i++) (*program)->headers.emplace_back(include_names[i], headers[i]);
    return success;
}

MILLRACE_API nvrtcDestroyProgram(Program** program) {
    if (!program || !*program) return invalid_program;
    delete *program;
    *program = nullptr;
    return success;
}

MILLRACE_API nvrtcAddNameExpression(Program* program, const char* expression) {
    if (!program) return invalid_program;
    if (program->compiled) return no_expressions_after;
    std::string lowered = "millrace_sim_expression_" + std::to_string(program->expressions.size());
    program->expressions.push_back({expression, lowered});
    return success;
}

MILLRACE_API nvrtcGetLoweredName(Program* program, const char* expression, const char** name) {
    if (!program) return invalid_program;
    if (!program->compiled) return no_names_before;
    for (const NameExpression& known : program->expressions) {
        if (known.expression != expression) continue;
        *name = known.lowered.c_str();
        return success;
    }
    return expression_invalid;
}

MILLRACE_API nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    if (!program) return invalid_program;
    Options parsed;
    program->log.clear();
    program->image.clear();
    if (Result code = parse_options(count, options, &parsed, &program->log)) return code;
    Result code = compile(program, parsed);
    program->compiled = code == success;
    return code;
}

MILLRACE_API nvrtcGetCUBINSize(Program* program, size_t* bytes) {
    if (!program || !program->compiled) return invalid_program;
    // A virtual architecture has PTX only.
    *bytes = program->real_architecture ? program->image.size() : 0;
    return success;
}
MILLRACE_API nvrtcGetCUBIN(Program* program, char* cubin) {
    if (!program || !program->compiled || !program->real_architecture) return invalid_program;
    memcpy(cubin, program->image.data(), program->image.size());
    return success;
}
MILLRACE_API nvrtcGetPTXSize(Program* program, size_t* bytes) {
    if (!program || !program->compiled) return invalid_program;
    *bytes = program->image.size();
    return success;
}
MILLRACE_API nvrtcGetPTX(Program* program, char* ptx) {
    if (!program || !program->compiled) return invalid_program;
    memcpy(ptx, program->image.data(), program->image.size());
    return success;
}
MILLRACE_API nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
    if (!program) return invalid_program;
    *bytes = program->log.size() + 1;
    return success;
}
MILLRACE_API nvrtcGetProgramLog(Program* program, char* log) {
    if (!program) return invalid_program;
    memcpy(log, program->log.c_str(), program->log.size() + 1);
    return success;
}

extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(int code) {
    static const char* names[] = {"NVRTC_SUCCESS",
                                  "NVRTC_ERROR_OUT_OF_MEMORY",
                                  "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                  "NVRTC_ERROR_INVALID_INPUT",
                                  "NVRTC_ERROR_INVALID_PROGRAM",
                                  "NVRTC_ERROR_INVALID_OPTION",
                                  "NVRTC_ERROR_COMPILATION",
                                  "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                                  "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                                  "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
                                  "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
                                  "NVRTC_ERROR_INTERNAL_ERROR"};
    return code >= 0 && code <= 11 ? names[code] : "NVRTC_ERROR unknown";
}
