//! Every file of CUDA kernels, for compiling them ahead of their first use.

use super::{
    activation, adamw, add, attention, cast, cross_entropy, dropout, embedding, glu,
    grouped_matmul, layer_norm, lerp, matmul, muon, permute, qk_norm, reduce, rms_norm, rope,
    route, rows,
};
use crate::cuda::{self, Source};
use crate::{Result, comm};

static SOURCES: [&Source; 30] = [
    &activation::cuda::SOURCE,
    &adamw::cuda::SOURCE,
    &add::cuda::SOURCE,
    &attention::cuda::forward::SOURCE,
    &attention::cuda::backward::SOURCE,
    &attention::cuda::flash::FORWARD,
    &attention::cuda::flash::BACKWARD,
    &attention::cuda::rows::SOURCE,
    &cast::cuda::SOURCE,
    &cast::cuda::STORED,
    &comm::SOURCE,
    &cross_entropy::cuda::SOURCE,
    &dropout::cuda::SOURCE,
    &embedding::cuda::SOURCE,
    &glu::cuda::SOURCE,
    &grouped_matmul::cuda::SOURCE,
    &grouped_matmul::cuda::MMA,
    &layer_norm::cuda::SOURCE,
    &lerp::cuda::SOURCE,
    &matmul::cuda::SOURCE,
    &matmul::eight_bits::SOURCE,
    &matmul::mma::SOURCE,
    &muon::cuda::SOURCE,
    &permute::cuda::SOURCE,
    &qk_norm::cuda::SOURCE,
    &reduce::cuda::SOURCE,
    &rms_norm::cuda::SOURCE,
    &rope::cuda::SOURCE,
    &route::cuda::SOURCE,
    &rows::cuda::SOURCE,
];

/// Compiles every CUDA kernel for an architecture, such as `sm_90`, into the cache of `options`; needs NVRTC and no
/// device. Returns the number of files.
/// # Errors
/// `NotAvailable` without NVRTC, `Compile` with its log.
pub fn compile_all(options: &cuda::Options, architecture: &str) -> Result<usize> {
    for source in SOURCES {
        cuda::compile_for(source, options, architecture)?;
    }
    Ok(SOURCES.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn files(folder: &Path, found: &mut usize) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                files(&path, found);
            } else if path.extension().is_some_and(|of| of == "cu") {
                *found += 1;
            }
        }
    }

    #[test]
    fn every_file_of_kernels_is_listed_once() {
        let names: BTreeSet<&str> = SOURCES.iter().map(|source| source.name).collect();
        assert_eq!(names.len(), SOURCES.len());
        let mut found = 0;
        files(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut found,
        );
        assert_eq!(found, SOURCES.len());
    }
}
