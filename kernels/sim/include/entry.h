// Entry points: how the runtime calls a kernel with parameters that it knows only as bytes.
#pragma once

namespace millrace_sim {

template <class T>
struct Plain {
    using Type = T;
};
template <class T>
struct Plain<const T> {
    using Type = T;
};

template <unsigned... I>
struct Indices {};
template <unsigned N, unsigned... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <unsigned... I>
struct MakeIndices<0, I...> {
    using Type = Indices<I...>;
};

template <class... A>
struct Entry {
    template <unsigned... I>
    static void spread(void (*function)(A...), void** parameters, Indices<I...>) {
        function(*static_cast<typename Plain<A>::Type*>(parameters[I])...);
    }
    static void call(void* function, void** parameters) {
        spread(reinterpret_cast<void (*)(A...)>(function), parameters, typename MakeIndices<sizeof...(A)>::Type{});
    }
    static constexpr unsigned sizes[] = {sizeof(A)..., 0};
    static constexpr unsigned alignments[] = {alignof(A)..., 0};
};

// `name` is null for kernels with C++ linkage: the runtime asks the object's symbol table for the mangled name.
template <class... A>
inline Kernel describe(void (*function)(A...), const char* name, unsigned max_threads, unsigned = 0, unsigned = 0) {
    return Kernel{name,
                  reinterpret_cast<void*>(function),
                  &Entry<A...>::call,
                  Entry<A...>::sizes,
                  Entry<A...>::alignments,
                  sizeof...(A),
                  max_threads};
}

// A dynamic shared array, `extern __shared__ T name[];`, becomes a pointer to the block's dynamic shared memory.
template <class T>
inline T* dynamic_shared(unsigned long alignment) {
    return reinterpret_cast<T*>(
        (reinterpret_cast<unsigned long>(millrace_sim_position.dynamic_shared) + alignment - 1) / alignment *
        alignment);
}

}  // namespace millrace_sim
