//! Traced collectives: records each as a span of `trace` with its name, group, and this rank's bytes. The transport
//! adds the waits within.

use super::gpu::BetweenGpus;
use super::{Collective, Take};
use crate::Result;
use crate::trace::{Kind, Label, Span, span};

/// One rank of a group that records spans.
pub struct Traced {
    name: &'static str,
    /// Tensors on GPUs are staged through the host.
    is_staged: bool,
    inner: Box<dyn Collective>,
}

impl Traced {
    /// `name` is the group's.
    pub fn new(name: &'static str, inner: Box<dyn Collective>) -> Traced {
        Traced {
            name,
            is_staged: false,
            inner,
        }
    }

    /// The same; tensors on GPUs are staged through the host.
    pub fn staged(name: &'static str, inner: Box<dyn Collective>) -> Traced {
        Traced {
            is_staged: true,
            ..Traced::new(name, inner)
        }
    }

    fn span(&self, op: &'static str, bytes: usize) -> Span {
        span(|| Label {
            group: Some(self.name),
            bytes: Some(bytes),
            ..Label::new(Kind::Collective, op)
        })
    }
}

impl Collective for Traced {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn all_reduce_sum(&self, x: &mut [f32]) -> Result<()> {
        let _span = self.span("all_reduce_sum", size_of_val(x));
        self.inner.all_reduce_sum(x)
    }

    fn reduce_scatter_sum(&self, x: &[f32], cuts: &[usize], out: &mut [f32]) -> Result<()> {
        let _span = self.span("reduce_scatter_sum", size_of_val(x));
        self.inner.reduce_scatter_sum(x, cuts, out)
    }

    fn all_reduce_max(&self, x: &mut [f32]) -> Result<()> {
        let _span = self.span("all_reduce_max", size_of_val(x));
        self.inner.all_reduce_max(x)
    }

    fn all_gather_to(&self, x: &[f32], take: &mut Take<'_>) -> Result<()> {
        let _span = self.span("all_gather", size_of_val(x));
        self.inner.all_gather_to(x, take)
    }

    fn all_gather_f64(&self, x: &[f64]) -> Result<Vec<Vec<f64>>> {
        let _span = self.span("all_gather_f64", size_of_val(x));
        self.inner.all_gather_f64(x)
    }

    fn all_to_all(&self, parts: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        let bytes = parts.iter().map(|part| size_of_val(&part[..])).sum();
        let _span = self.span("all_to_all", bytes);
        self.inner.all_to_all(parts)
    }

    fn broadcast(&self, x: &mut [f32], root: usize) -> Result<()> {
        let _span = self.span("broadcast", size_of_val(x));
        self.inner.broadcast(x, root)
    }

    fn send(&self, to: usize, x: &[f32]) -> Result<()> {
        let _span = self.span("send", size_of_val(x));
        self.inner.send(to, x)
    }

    fn recv(&self, from: usize, x: &mut [f32]) -> Result<()> {
        let _span = self.span("recv", size_of_val(x));
        self.inner.recv(from, x)
    }

    fn poll(&self, from: usize) -> Result<Option<Vec<f32>>> {
        self.inner.poll(from)
    }

    fn between_gpus(&self) -> Option<BetweenGpus<'_>> {
        match self.is_staged {
            true => None,
            false => self.inner.between_gpus(),
        }
    }

    fn barrier(&self) -> Result<()> {
        let _span = self.span("barrier", 0);
        self.inner.barrier()
    }
}
