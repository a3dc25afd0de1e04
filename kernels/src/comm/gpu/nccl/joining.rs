//! How ranks join NCCL's communicators.

use std::sync::{Arc, Mutex};

use super::watch::{Control, Shared, lock};
use super::{Edge, Joined, LinkStreams, Links, SOURCE};
use crate::comm::Collective;
use crate::comm::watchdog::{Roster, Watch};
use crate::cuda::Watched;
use crate::cuda::nccl::{Communicator, Nccl, UniqueId};
use crate::{Device, Result, SumOrder};

/// How tensors on GPUs travel within a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By NCCL.
    Nccl,
    /// By copies from device to device within this process.
    Copies,
    /// Through the host.
    Host,
}

/// One rank's means to join the communicators of its groups.
pub struct Joining {
    nccl: Arc<Nccl>,
    device: Device,
    sums: SumOrder,
    control: Arc<Control>,
    watch: Arc<Watch>,
    /// Card of every world rank.
    cards: Vec<[u8; 16]>,
    made: Mutex<u32>,
}

impl Joining {
    /// For the rank of `world`, a group of all ranks that is used for nothing else, on `device`; every rank must make
    /// the same call. `sums` is the order of sums.
    /// # Errors
    /// As `Collective::all_gather_f64`; `Driver` if the device fails.
    pub fn new(
        nccl: &Arc<Nccl>,
        device: &Device,
        sums: SumOrder,
        world: Box<dyn Collective>,
        watch: Arc<Watch>,
    ) -> Result<Joining> {
        let card = device.gpu()?.card()?;
        let bytes: Vec<f64> = card.iter().map(|byte| f64::from(*byte)).collect();
        let cards = world.all_gather_f64(&bytes)?;
        let cards = cards.iter().map(|bytes| {
            let mut card = [0; 16];
            card.copy_from_slice(&to_bytes(bytes, 16));
            card
        });
        Ok(Joining {
            nccl: Arc::clone(nccl),
            device: device.clone(),
            sums,
            cards: cards.collect(),
            control: Arc::new(Control::new(world)),
            watch,
            made: Mutex::new(0),
        })
    }

    /// Joins the group's communicator if each of its ranks has a card of its own. Returns the group and the way of its
    /// tensors; every member must make the same call.
    /// # Errors
    /// `Driver` if NCCL refuses; `Late` or `PeerGone` if a member does not join.
    pub fn join(
        &self,
        name: &'static str,
        inner: Arc<dyn Collective>,
    ) -> Result<(Arc<dyn Collective>, Way)> {
        let number = {
            let mut made = lock(&self.made);
            *made += 1;
            *made
        };
        if inner.size() == 1 {
            return Ok((inner, Way::Copies));
        }
        let me = self.control.world.rank();
        let members = inner.all_gather_f64(&[wide(me)])?;
        let members: Vec<usize> = members.iter().map(|one| narrow(one[0])).collect();
        let is_shared = |at: usize| {
            let card = self.cards[members[at]];
            members[..at].iter().any(|&other| self.cards[other] == card)
        };
        if (0..members.len()).any(is_shared) {
            let way = match inner.between_gpus() {
                Some(_) => Way::Copies,
                None => Way::Host,
            };
            return Ok((inner, way));
        }
        let mine: Vec<f64> = match inner.rank() {
            0 => (self.nccl.unique_id()?.0.iter())
                .map(|byte| f64::from(*byte))
                .collect(),
            _ => Vec::new(),
        };
        let all = inner.all_gather_f64(&mine)?;
        let mut id = UniqueId([0; 128]);
        id.0.copy_from_slice(&to_bytes(&all[0], 128));
        let member = Member {
            name,
            members,
            rank: inner.rank(),
            number,
        };
        let shared = self.communicator(member, id)?;
        let joined = Joined {
            inner,
            shared,
            device: self.device.clone(),
            sums: self.sums,
        };
        Ok((Arc::new(joined), Way::Nccl))
    }
}

/// A rank's part in a communicator.
struct Member {
    /// Purpose of the group.
    name: &'static str,
    /// World ranks, by number in the group.
    members: Vec<usize>,
    /// Number of this rank among them.
    rank: usize,
    /// Number of the group among those of its ranks.
    number: u32,
}

impl Joining {
    /// Joins the communicator of `id`, under the watchdog.
    fn communicator(&self, of: Member, id: UniqueId) -> Result<Arc<Shared>> {
        let cuda = self.device.gpu()?;
        cuda.load(&SOURCE)?;
        let size = of.members.len();
        let shared = Arc::new(Shared {
            communicator: Communicator::start(&self.nccl, cuda, id, of.rank, size)?,
            cuda: Arc::clone(cuda),
            roster: Roster {
                name: of.name,
                members: of.members,
                watch: Arc::clone(&self.watch),
                is_patient: false,
            },
            rank: of.rank,
            number: of.number,
            control: Arc::clone(&self.control),
            progress: Mutex::default(),
        });
        shared.settle("join NCCL's group")?;
        let watched: Arc<dyn Watched> = Arc::clone(&shared) as Arc<dyn Watched>;
        cuda.watch(&watched);
        Ok(shared)
    }

    /// Joins the links of `edges` that this rank is an end of, each a communicator of two ranks, and sends a number over
    /// each, so that NCCL connects the ranks here and no later call waits for the other. `world` is a group of all ranks
    /// for messages between them; every rank must make the same call. None, on all ranks, if two ends share a card.
    /// # Errors
    /// As `join`.
    pub fn link(
        &self,
        name: &'static str,
        world: &dyn Collective,
        edges: &[Edge],
        streams: LinkStreams,
    ) -> Result<Option<Links>> {
        let first = {
            let mut made = lock(&self.made);
            let first = *made;
            *made += u32::try_from(edges.len()).unwrap_or(u32::MAX);
            first
        };
        if edges
            .iter()
            .any(|edge| self.cards[edge.from] == self.cards[edge.to])
        {
            return Ok(None);
        }
        let me = self.control.world.rank();
        let mut links = Links::new(&self.device, streams);
        for (number, &Edge { from, to }) in (first + 1..).zip(edges) {
            let id = if me == from {
                let id = self.nccl.unique_id()?;
                world.send(to, &id.0.map(f32::from))?;
                id
            } else if me == to {
                let mut bytes = [0.0; 128];
                world.recv(from, &mut bytes)?;
                let bytes = bytes.map(f64::from);
                let mut id = UniqueId([0; 128]);
                id.0.copy_from_slice(&to_bytes(&bytes, 128));
                id
            } else {
                continue;
            };
            let member = Member {
                name,
                members: vec![from, to],
                rank: usize::from(me == to),
                number,
            };
            let shared = self.communicator(member, id)?;
            links.add(Edge { from, to }, shared)?;
        }
        // else the deadline of the first message would run from when somebody notices that its edge is connected
        self.device.synchronize()?;
        Ok(Some(links))
    }
}

/// Bytes that were sent as numbers.
fn to_bytes(numbers: &[f64], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers
        .iter()
        .map(|&x| u8::try_from(narrow(x)).unwrap_or(0))
        .collect();
    bytes.resize(len, 0);
    bytes
}

/// A rank as a number that groups gather.
fn wide(rank: usize) -> f64 {
    f64::from(u32::try_from(rank).unwrap_or(u32::MAX))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small whole numbers"
)]
fn narrow(number: f64) -> usize {
    number as usize
}
