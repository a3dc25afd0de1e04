//! The one error type of this crate: every variant states what was found, what was wanted and where.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::resume::Difference;

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failures of training, generation and checkpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory could not be read or written.
    #[error("{action} {path}", path = path.display())]
    Io {
        /// Attempted action, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The plan contradicts itself; every problem is listed.
    #[error("the plan contradicts itself: {}", .0.join("; "))]
    Plan(Vec<String>),
    /// A tensor operation or a collective failed.
    #[error("rank {rank}: {during}")]
    Kernel {
        /// World rank of the thread.
        rank: usize,
        /// Operation of the rank at the time.
        during: &'static str,
        /// The operation's own error, with shapes.
        source: kernels::Error,
    },
    /// A device that the job asks for cannot be used.
    #[error("open the device")]
    Device {
        /// The missing library or device, the names that were tried and a hint; or the device's own error.
        source: kernels::Error,
    },
    /// The device of a rank has less memory than the plan needs, before the first step or in one.
    #[error("rank {rank}: the plan takes {needs}")]
    DeviceMemory {
        /// World rank.
        rank: usize,
        /// The predicted bytes of the rank by purpose, those that the device has, and the keys of the job to change, those
        /// that help most first.
        needs: Box<str>,
        /// The device's answer.
        source: kernels::Error,
    },
    /// The system could not start threads.
    #[error("rank {rank}: start its threads")]
    Threads {
        /// World rank.
        rank: usize,
        /// The pool's error.
        source: rayon::ThreadPoolBuildError,
    },
    /// The data source failed to give a sample.
    #[error("read sample {sample}")]
    Sample {
        /// Index in the order of the data source.
        sample: u64,
        /// The source's own error.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The data source has fewer samples than the job needs.
    #[error("the training set has {found} samples, {wanted} are needed for {steps} steps")]
    TooFewSamples {
        /// Samples available.
        found: u64,
        /// Samples the job needs.
        wanted: u64,
        /// Steps of the job.
        steps: u64,
    },
    /// The validation set is empty although evaluation is requested.
    #[error("the validation set has no samples, {wanted} are requested")]
    NoSamples {
        /// Samples requested.
        wanted: u64,
    },
    /// A sample holds a token id outside the vocabulary.
    #[error("sample {sample} position {position}: token {found}, vocabulary is {vocab}")]
    Token {
        /// Index in the order of the data source.
        sample: u64,
        /// Position in the sample.
        position: usize,
        /// The token id.
        found: u32,
        /// Number of token ids.
        vocab: usize,
    },
    /// A source has samples of another kind than the model learns from.
    #[error("the source has {found} samples, the model learns from {wanted}")]
    SampleKind {
        /// Kind of the source's samples.
        found: &'static str,
        /// Kind that the model takes.
        wanted: &'static str,
    },
    /// A step that must not be trained through.
    #[error("step {step}: {reason}{}; its batch is in {dump}", so_far(*.skipped), dump = dump.display())]
    BadStep {
        /// The step, counted from 1.
        step: u64,
        /// Why the step is bad.
        reason: String,
        /// Steps right before it that were skipped.
        skipped: u64,
        /// File that its batch was written to.
        dump: PathBuf,
    },
    /// A file of a checkpoint differs from the one that was written.
    #[error("{path} at byte {offset}: {what}: found {found}, want {wanted}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte offset of the damage, or of the field that shows it.
        offset: u64,
        /// The field or tensor.
        what: String,
        /// Content found.
        found: String,
        /// Content expected.
        wanted: String,
    },
    /// Checkpoints exist but not one of them is whole.
    #[error("no checkpoint in {path} is whole: {reasons}", path = path.display())]
    NoWholeCheckpoint {
        /// The folder of checkpoints.
        path: PathBuf,
        /// Why each was refused, newest first.
        reasons: String,
    },
    /// A checkpoint belongs to another job.
    #[error("{path} does not fit this job: {}", list(differences), path = path.display())]
    Mismatch {
        /// The checkpoint.
        path: PathBuf,
        /// Every setting that differs and must not.
        differences: Vec<Difference>,
    },
    /// The launcher's variables contradict each other; every problem is listed.
    #[error("the launcher's variables do not fit: {}", .0.join("; "))]
    Launch(Vec<String>),
    /// The requested instruction set does not exist, or this machine lacks it.
    #[error("{variable}: found {found:?}, want one that this machine has: {wanted}")]
    Cpu {
        /// The variable that names it.
        variable: &'static str,
        /// Its value.
        found: String,
        /// Those of this machine, the widest first.
        wanted: String,
    },
    /// The processes of a run did not find each other.
    #[error("connect the processes of the run")]
    Connect {
        /// Which process missed which other, where.
        source: kernels::Error,
    },
    /// The processes of a run have different settings.
    #[error("the processes do not have the same {what}: {}", differences.join("; "))]
    Unlike {
        /// Subject of the comparison.
        what: &'static str,
        /// Each with ranks, hosts and both values.
        differences: Vec<String>,
    },
    /// Another process of the run ended first.
    #[error("{who} {reason}")]
    Peer {
        /// Its ranks and host.
        who: String,
        /// Its own report, or how it ended.
        reason: String,
    },
    /// The rank's thread panicked; a broken invariant of this program.
    #[error("rank {rank} panicked: {message}")]
    Panicked {
        /// World rank of the thread.
        rank: usize,
        /// The panic's message.
        message: String,
    },
    /// Another program's model that is not supported, or a checkpoint whose numbers contradict its tensors; every
    /// problem is listed.
    #[error("{path} cannot be used: {problems}", path = path.display(), problems = problems.join("; "))]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// Each with the found and the wanted value.
        problems: Vec<String>,
    },
    /// A request that the model cannot serve.
    #[error("{what}: found {found}, want {wanted}")]
    Request {
        /// The argument.
        what: &'static str,
        /// Its value.
        found: String,
        /// Values that would work.
        wanted: String,
    },
}

fn list(differences: &[Difference]) -> String {
    let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

fn so_far(skipped: u64) -> String {
    match skipped {
        0 => String::new(),
        1 => ", after 1 skipped step".into(),
        _ => format!(", after {skipped} skipped steps in a row"),
    }
}

impl Error {
    /// True if this machine lacks a device or library that the job asks for.
    pub fn is_unavailable(&self) -> bool {
        let Error::Device { source } = self else {
            return false;
        };
        matches!(source, kernels::Error::NotAvailable { .. })
    }

    /// Message and causes in one line.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// Attaches the path to a bare IO error.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io {
            action,
            path: path.to_owned(),
            source,
        })
    }
}

/// Attaches the rank to an error of the kernels crate.
pub(crate) trait OnRank<T> {
    fn on_rank(self, rank: usize, during: &'static str) -> Result<T>;
}

impl<T> OnRank<T> for kernels::Result<T> {
    fn on_rank(self, rank: usize, during: &'static str) -> Result<T> {
        self.map_err(|source| Error::Kernel {
            rank,
            during,
            source,
        })
    }
}
