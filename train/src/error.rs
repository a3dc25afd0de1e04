//! The one error type of this crate: every variant says what was found, what was wanted and where.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::resume::Difference;

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong in training, generation and checkpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory could not be read or written.
    #[error("{action} {path}", path = path.display())]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The plan contradicts itself; every problem is listed.
    #[error("the plan does not hold together: {}", .0.join("; "))]
    Plan(Vec<String>),
    /// A tensor operation or a collective failed.
    #[error("rank {rank}: {during}")]
    Kernel {
        /// World rank of the thread.
        rank: usize,
        /// What the rank was doing.
        during: &'static str,
        /// The operation's own error, with shapes.
        source: kernels::Error,
    },
    /// The system gave no threads.
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
    /// The validation set is empty although evaluation is asked for.
    #[error("the validation set has no samples, {wanted} are asked for")]
    NoSamples {
        /// Samples asked for.
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
        /// What the source has.
        found: &'static str,
        /// What the model takes.
        wanted: &'static str,
    },
    /// A step that must not be trained through.
    #[error("step {step}: {reason}{}; its batch is in {dump}", so_far(*.skipped), dump = dump.display())]
    BadStep {
        /// The step, counted from 1.
        step: u64,
        /// What is bad about it.
        reason: String,
        /// Steps right before it that were skipped.
        skipped: u64,
        /// Where its batch is written.
        dump: PathBuf,
    },
    /// A file of a checkpoint is not what was written.
    #[error("{path} at byte {offset}: {what}: found {found}, want {wanted}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte offset of the damage, or of the field that shows it.
        offset: u64,
        /// The field or tensor.
        what: String,
        /// What is there.
        found: String,
        /// What should be there.
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
    /// What a launcher told does not hold together; every problem is listed.
    #[error("the launcher's variables do not fit: {}", .0.join("; "))]
    Launch(Vec<String>),
    /// An instruction set was asked for that is none, or that this machine lacks.
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
        /// Who missed whom, where.
        source: kernels::Error,
    },
    /// The processes of a run are not about to do the same.
    #[error("the processes have not the same {what}: {}", differences.join("; "))]
    Unlike {
        /// What they compared.
        what: &'static str,
        /// Each with ranks, hosts and both values.
        differences: Vec<String>,
    },
    /// Another process of the run ended first.
    #[error("{who} {reason}")]
    Peer {
        /// Its ranks and host.
        who: String,
        /// Its own words, or how it went.
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
    /// A model of another program that this one does not know, or a checkpoint whose numbers are not those of its
    /// tensors; every problem is listed.
    #[error("{path} cannot be taken: {problems}", path = path.display(), problems = problems.join("; "))]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// Each with what was found and what was wanted.
        problems: Vec<String>,
    },
    /// A request that the model cannot serve.
    #[error("{what}: found {found}, want {wanted}")]
    Request {
        /// The argument.
        what: &'static str,
        /// Its value.
        found: String,
        /// What would do.
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
