// Three words are left in the source by shim.h:
//   __millrace_global__         marks a kernel: it is entered in the object's table under its name
//   __millrace_bounds__((a,b))  its launch bounds
//   __millrace_shared__         becomes `thread_local`; `extern __millrace_shared__ T name[];` becomes a pointer
// Scanning after preprocessing sees kernels that macros make and none that conditions leave out. Replacements keep
// the lines of the source, so that error messages point at it.

#include "scan.h"

#include <cctype>
#include <cstdlib>
#include <map>

namespace millrace_sim {

namespace {

struct Token {
    size_t begin, end;
    char kind;  // 'i' identifier, 's' string or character, 'n' number, or the punctuation itself
};

struct Scope {
    char kind;  // 'n' namespace, 'c' extern "C", 'o' any other
    std::vector<std::string> names;
};

struct KernelName {
    std::string name, bounds;
    std::vector<std::string> namespaces;  // "" is an anonymous one
    bool c_linkage;
};

struct Edit {
    size_t begin, end;
    std::string text;
};

class Scanner {
public:
    explicit Scanner(const std::string& text) : text(text) { tokenize(); }

    void walk() {
        size_t declaration = 0;
        for (size_t i = 0; i < tokens.size() && error.empty(); i++) {
            char kind = tokens[i].kind;
            if (kind == '{') {
                scopes.push_back(open_scope(declaration, i));
                declaration = i + 1;
            } else if (kind == '}') {
                if (!scopes.empty()) scopes.pop_back();
                declaration = i + 1;
            } else if (kind == ';') {
                declaration = i + 1;
                bounds.clear();
            } else if (is(i, "__millrace_global__")) {
                blank(tokens[i].begin, tokens[i].end);
                if (outside_functions()) kernel(declaration, i);
            } else if (is(i, "__millrace_bounds__")) {
                size_t close = matching(i + 1);
                if (close + 1 < tokens.size() + 1) {
                    bounds = text.substr(tokens[i + 2].end, tokens[close - 1].begin - tokens[i + 2].end);
                    blank(tokens[i].begin, tokens[close].end);
                    i = close;
                }
            } else if (is(i, "__millrace_shared__")) {
                bool dynamic = i > 0 && is(i - 1, "extern");
                if (dynamic)
                    i = dynamic_shared(i - 1);
                else
                    static_shared(i);
            }
        }
    }

    std::string rewritten() const {
        std::string out;
        size_t done = 0;
        for (const Edit& edit : edits) {
            if (edit.begin < done) continue;
            out.append(text, done, edit.begin - done);
            out += edit.text;
            done = edit.end;
        }
        out.append(text, done, std::string::npos);
        return out;
    }

    const std::string& text;
    std::vector<Token> tokens;
    std::vector<Scope> scopes;
    std::vector<Edit> edits;
    std::vector<KernelName> kernels;
    std::string bounds, error;
    unsigned dynamic_alignment = 16;
    std::map<std::string, std::string> dynamic_types;

private:
    void tokenize() {
        size_t i = 0, n = text.size();
        bool line_start = true;
        while (i < n) {
            char c = text[i];
            if (c == '\n') {
                line_start = true;
                i++;
            } else if (isspace(static_cast<unsigned char>(c))) {
                i++;
            } else if (c == '#' && line_start) {
                while (i < n && text[i] != '\n') i++;
            } else if (c == '"' || c == '\'') {
                i = after_literal(i);
                line_start = false;
            } else if (isalpha(static_cast<unsigned char>(c)) || c == '_') {
                size_t begin = i;
                while (i < n && (isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_')) i++;
                if (i < n && text[i] == '"' && text[i - 1] == 'R') i = after_raw(i);
                tokens.push_back({begin, i, 'i'});
                line_start = false;
            } else if (isdigit(static_cast<unsigned char>(c))) {
                size_t begin = i;
                while (i < n && (isalnum(static_cast<unsigned char>(text[i])) || text[i] == '.' ||
                                 (text[i] == '\'' && isalnum(static_cast<unsigned char>(text[i + 1])))))
                    i++;
                tokens.push_back({begin, i, 'n'});
                line_start = false;
            } else {
                tokens.push_back({i, i + 1, c});
                i++;
                line_start = false;
            }
        }
    }

    size_t after_literal(size_t i) {
        size_t begin = i;
        char quote = text[i++];
        while (i < text.size() && text[i] != quote) i += text[i] == '\\' ? 2 : 1;
        tokens.push_back({begin, i + 1, 's'});
        return i + 1;
    }

    size_t after_raw(size_t quote) {
        size_t open = text.find('(', quote);
        if (open == std::string::npos) return text.size();
        std::string close = ")" + text.substr(quote + 1, open - quote - 1) + "\"";
        size_t end = text.find(close, open);
        return end == std::string::npos ? text.size() : end + close.size();
    }

    bool is(size_t i, const char* word) const {
        return i < tokens.size() && text.compare(tokens[i].begin, tokens[i].end - tokens[i].begin, word) == 0;
    }
    std::string word(size_t i) const { return text.substr(tokens[i].begin, tokens[i].end - tokens[i].begin); }

    // The index of the bracket that closes the one at `open`.
    size_t matching(size_t open) const {
        int depth = 0;
        for (size_t i = open; i < tokens.size(); i++) {
            if (tokens[i].kind == '(' || tokens[i].kind == '[') depth++;
            if ((tokens[i].kind == ')' || tokens[i].kind == ']') && --depth == 0) return i;
        }
        return tokens.size() - 1;
    }

    void blank(size_t begin, size_t end) { edits.push_back({begin, end, lines_of(begin, end)}); }

    std::string lines_of(size_t begin, size_t end) const {
        std::string lines;
        for (size_t i = begin; i < end; i++)
            if (text[i] == '\n') lines += '\n';
        return lines.empty() ? " " : lines;
    }

    bool outside_functions() const {
        for (const Scope& scope : scopes)
            if (scope.kind == 'o') return false;
        return true;
    }

    Scope open_scope(size_t from, size_t brace) const {
        Scope scope{'o', {}};
        for (size_t i = from; i < brace; i++) {
            if (is(i, "namespace")) {
                scope.kind = 'n';
                for (size_t k = i + 1; k < brace; k++) {
                    if (is(k, "__attribute__"))
                        k = matching(k + 1);
                    else if (tokens[k].kind == 'i')
                        scope.names.push_back(word(k));
                }
                if (scope.names.empty()) scope.names.push_back("");
                return scope;
            }
            if (tokens[i].kind == '(' || tokens[i].kind == '=') return scope;
        }
        if (brace - from == 2 && is(from, "extern") && tokens[from + 1].kind == 's') scope.kind = 'c';
        return scope;
    }

    // Enters the kernel whose mark is token `mark` of a declaration, if it is the definition of a function.
    void kernel(size_t declaration, size_t mark) {
        KernelName found;
        found.c_linkage = false;
        for (const Scope& scope : scopes) {
            if (scope.kind == 'c') found.c_linkage = true;
            for (const std::string& name : scope.names) found.namespaces.push_back(name);
        }
        for (size_t i = declaration; i < mark; i++) {
            if (is(i, "template")) return;  // reached through name expressions only
            if (is(i, "extern") && tokens[i + 1].kind == 's') found.c_linkage = true;
        }
        std::string its_bounds = bounds;
        size_t i = mark + 1;
        for (; i < tokens.size(); i++) {
            if (tokens[i].kind == ';' || tokens[i].kind == '{') return;
            if (is(i, "template")) return;
            if (is(i, "extern") && tokens[i + 1].kind == 's') found.c_linkage = true;
            if (is(i, "__millrace_bounds__")) {
                size_t close = matching(i + 1);
                its_bounds = text.substr(tokens[i + 2].end, tokens[close - 1].begin - tokens[i + 2].end);
                i = close;
            } else if (is(i, "__attribute__") || is(i, "alignas")) {
                i = matching(i + 1);
            } else if (tokens[i].kind == '(' && tokens[i - 1].kind == 'i') {
                break;
            }
        }
        if (i >= tokens.size()) return;
        found.name = word(i - 1);
        for (i = matching(i) + 1; i < tokens.size() && tokens[i].kind != '{'; i++)
            if (tokens[i].kind == ';') return;
        found.bounds = its_bounds;
        kernels.push_back(found);
    }

    void static_shared(size_t mark) {
        edits.push_back({tokens[mark].begin, tokens[mark].end, "thread_local"});
        for (size_t i = mark; i < tokens.size() && tokens[i].kind != ';'; i++)
            if (tokens[i].kind == '=')
                error = location(tokens[mark].begin) + ": error: initializer not allowed for __shared__ variable";
    }

    // Rewrites `extern __shared__ [alignment] T name[]...;` and returns the index of its semicolon.
    size_t dynamic_shared(size_t first) {
        size_t i = first + 2, name = 0;
        std::string type, alignment = "16";
        for (; i < tokens.size() && tokens[i].kind != '[' && tokens[i].kind != ';'; i++) {
            if (is(i, "__attribute__") || is(i, "alignas")) {
                size_t close = matching(i + 1);
                for (size_t k = i; k < close; k++)
                    if (tokens[k].kind == 'n') alignment = word(k);
                i = close;
                continue;
            }
            if (name) type += word(name) + " ";
            name = i;
        }
        size_t semicolon = i;
        while (semicolon < tokens.size() && tokens[semicolon].kind != ';') semicolon++;
        bool in_function = !outside_functions();
        if (!name || type.empty() || i >= tokens.size() || tokens[i].kind != '[' || !in_function) {
            error = location(tokens[first].begin) +
                    ": error: the simulator takes dynamic shared memory as `extern __shared__ T name[];` in a function";
            return semicolon;
        }
        size_t close = matching(i);
        std::string rest = text.substr(tokens[close].end, tokens[semicolon].begin - tokens[close].end);
        // As in CUDA, where all declarations of a name are one variable.
        std::string& known = dynamic_types[word(name)];
        if (known.empty()) known = type + rest;
        if (known != type + rest)
            error = location(tokens[first].begin) + ": error: declaration is incompatible with previous \"" +
                    word(name) + "\", which has another type";
        unsigned bytes = static_cast<unsigned>(strtoul(alignment.c_str(), nullptr, 0));
        if (bytes > dynamic_alignment) dynamic_alignment = bytes;
        size_t begin = tokens[first].begin, end = tokens[semicolon].begin;
        std::string lines = lines_of(begin, end);
        edits.push_back({begin, end,
                         "auto* const " + word(name) + " = ::millrace_sim::dynamic_shared<" + type + rest + ">(" +
                             alignment + ")" + (lines == " " ? "" : lines)});
        return semicolon;
    }

    // "FILE:LINE" of a position, from the last line marker before it.
    std::string location(size_t position) const {
        std::string file = "source";
        long line = 1;
        size_t i = 0;
        while (i < position) {
            size_t end = text.find('\n', i);
            if (end == std::string::npos || end >= position) break;
            if (text[i] == '#' && text[i + 1] == ' ') {
                line = strtol(text.c_str() + i + 2, nullptr, 10);
                size_t open = text.find('"', i), shut = text.find('"', open + 1);
                if (open < end && shut < end) file = text.substr(open + 1, shut - open - 1);
            } else {
                line++;
            }
            i = end + 1;
        }
        return file + ":" + std::to_string(line);
    }
};

}  // namespace

ScanResult scan(const std::string& preprocessed, const std::vector<NameExpression>& expressions, bool observed) {
    Scanner scanner(preprocessed);
    scanner.walk();
    ScanResult result;
    result.error = scanner.error;
    result.dynamic_alignment = scanner.dynamic_alignment;
    std::string table, entries;
    unsigned number = 0;
    for (const KernelName& kernel : scanner.kernels) {
        // Inside the kernel's own namespaces its name and those in its bounds mean what they meant there.
        std::string function = "millrace_sim_kernel_" + std::to_string(number++), open, close, path;
        for (const std::string& name : kernel.namespaces) {
            open += "namespace " + name + " { ";
            close += " }";
            if (!name.empty()) path += name + "::";
        }
        table += open + "static inline ::millrace_sim::Kernel " + function + "() { return ::millrace_sim::describe(&" +
                 kernel.name + ", " + (kernel.c_linkage ? "\"" + kernel.name + "\"" : "nullptr") + ", " +
                 (kernel.bounds.empty() ? "0" : kernel.bounds) + "); }" + close + "\n";
        entries += "::" + path + function + "(), ";
    }
    for (const NameExpression& expression : expressions) {
        size_t start = expression.expression.find_first_not_of(" &");
        std::string name = start == std::string::npos ? "" : expression.expression.substr(start);
        entries += "::millrace_sim::describe(&" + name + ", \"" + expression.lowered + "\", 0), ";
        number++;
    }
    result.source = scanner.rewritten() + "\n# 1 \"<table of kernels>\"\n" + table;
    if (number) result.source += "static const ::millrace_sim::Kernel millrace_sim_table[] = {" + entries + "};\n";
    result.source +=
        "extern \"C\" const ::millrace_sim::Module millrace_sim_module;\n"
        "const ::millrace_sim::Module millrace_sim_module = {::millrace_sim::abi_version, " +
        std::to_string(number) + ", " + (number ? "millrace_sim_table" : "nullptr") + ", " + (observed ? "1" : "0") +
        "};\n";
    return result;
}

}  // namespace millrace_sim
