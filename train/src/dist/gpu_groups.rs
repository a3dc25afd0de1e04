//! Groups of ranks whose tensors are on GPUs: which of them use NCCL.

use std::sync::Arc;

use kernels::comm::{Collective, Edge, Joining, LinkStreams, Watch, Way};
use kernels::cuda::nccl::Nccl;
use kernels::{Device, Result, Stream, SumOrder};

use crate::dist::mesh::{Groups, StageEdges, StageLinks};

/// What ranks share to connect their GPUs.
pub(crate) struct GpuLinks {
    /// The library, if it is there and wanted.
    pub nccl: Option<Arc<Nccl>>,
    /// The order of sums.
    pub sums: SumOrder,
    pub watch: Arc<Watch>,
    /// Edges between pipeline stages.
    pub edges: StageEdges,
}

impl GpuLinks {
    /// Lets the groups of a rank use NCCL, if `device` is a GPU; every rank must make the same call. Returns a log line
    /// about the way of each axis.
    pub(crate) fn connect(
        &self,
        mut groups: Groups,
        device: &Device,
    ) -> Result<(Groups, Option<String>)> {
        let control = groups.control.take();
        let (Some(control), false) = (control, device.is_host()) else {
            return Ok((groups, None));
        };
        if groups.world.size() == 1 {
            return Ok((groups, None));
        }
        let has = [if self.nccl.is_some() { 1.0 } else { 0.0 }];
        let all = control.all_gather_f64(&has)?;
        let lacking = all.iter().position(|has| has.first() != Some(&1.0));
        let (Some(nccl), None) = (&self.nccl, lacking) else {
            let mut ways = Ways::default();
            let axes = axes(&mut groups).into_iter();
            axes.for_each(|(name, group)| ways.note(name, group.as_ref(), way_of(group.as_ref())));
            self.note_stages(&groups, &mut ways);
            let why = match lacking {
                Some(rank) if self.nccl.is_some() => format!("rank {rank} has no NCCL"),
                _ => "no NCCL".to_owned(),
            };
            return Ok((groups, ways.line(&why)));
        };
        let watch = Arc::clone(&self.watch);
        let joining = Joining::new(nccl, device, self.sums, control, watch)?;
        let mut ways = Ways::default();
        for (name, group) in axes(&mut groups) {
            let (joined, way) = joining.join(name, Arc::clone(group))?;
            *group = joined;
            ways.note(name, group.as_ref(), way);
        }
        groups.links = self.link(&joining, &groups)?;
        self.note_stages(&groups, &mut ways);
        let label = nccl.label();
        Ok((groups, ways.line(&label)))
    }
}

impl GpuLinks {
    /// Links between pipeline stages.
    fn link(&self, joining: &Joining, groups: &Groups) -> Result<Option<StageLinks>> {
        let StageEdges {
            ahead,
            back,
            shared,
        } = &self.edges;
        if ahead.is_empty() {
            return Ok(None);
        }
        let by = groups.ahead.as_ref();
        let link = |edges: &[Edge], send, receive| {
            joining.link("pipeline", by, edges, LinkStreams { send, receive })
        };
        let ahead = link(ahead, Stream::SendAhead, Stream::ReceiveAhead)?;
        let back = link(back, Stream::SendBack, Stream::ReceiveBack)?;
        // exchanged at the end of a step, when computation has nothing else to do
        let shared = link(shared, Stream::Compute, Stream::Compute)?;
        Ok(match (ahead, back, shared) {
            (Some(ahead), Some(back), Some(shared)) => Some(StageLinks {
                ahead,
                back,
                shared,
            }),
            _ => None,
        })
    }

    fn note_stages(&self, groups: &Groups, ways: &mut Ways) {
        if self.edges.ahead.is_empty() {
            return;
        }
        let way = match groups.links {
            Some(_) => Way::Nccl,
            None => way_of(groups.ahead.as_ref()),
        };
        ways.note("pipeline", groups.ahead.as_ref(), way);
    }
}

/// Groups that have collectives of tensors; the others only send messages between two ranks.
fn axes(groups: &mut Groups) -> [(&'static str, &mut Arc<dyn Collective>); 8] {
    [
        ("tensor", &mut groups.tp),
        ("context", &mut groups.cp),
        ("context", &mut groups.cp_sums),
        ("expert", &mut groups.ep),
        ("expert data", &mut groups.expert_dp),
        ("expert data", &mut groups.expert_sums),
        ("data", &mut groups.dp),
        ("data", &mut groups.sums),
    ]
}

fn way_of(group: &dyn Collective) -> Way {
    match group.between_gpus() {
        Some(_) => Way::Copies,
        None => Way::Host,
    }
}

/// The way of each axis with more than one rank.
#[derive(Default)]
struct Ways(Vec<String>);

impl Ways {
    fn note(&mut self, name: &str, group: &dyn Collective, way: Way) {
        let by = match way {
            Way::Nccl => "NCCL",
            Way::Copies => "copies between devices",
            Way::Host => "the host",
        };
        let text = format!("{name} by {by}");
        if group.size() > 1 && !self.0.contains(&text) {
            self.0.push(text);
        }
    }

    fn line(&self, of: &str) -> Option<String> {
        let all = self.0.join(", ");
        (!all.is_empty()).then(|| format!("collectives of GPUs ({of}): {all}"))
    }
}
