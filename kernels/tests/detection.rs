//! Detection of the instruction set, in a process of its own: which threads it leaves behind.

#[test]
fn detection_leaves_the_number_of_threads_to_the_program() {
    // with tiles, it multiplies matrices to check them
    let path = kernels::CpuPath::widest();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1);
    assert!(pool.build_global().is_ok(), "{path} started the threads");
}
