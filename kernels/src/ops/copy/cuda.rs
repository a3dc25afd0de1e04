//! Copies on CUDA: the driver's.

use std::sync::Arc;

use crate::cuda::Cuda;
use crate::{Result, View, ViewMut};

pub(super) fn copy(on: &Arc<Cuda>, to: &mut ViewMut<'_>, from: View<'_>) -> Result<()> {
    on.copy(to.address(), from.address(), from.len() * 4)
}
