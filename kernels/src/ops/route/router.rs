//! Rule of a router.

/// How logits become weights of the chosen experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Softmax over all experts, then the k largest, not renormalised (Switch).
    SoftmaxTopK,
    /// The k largest logits, then softmax over them: Mixtral's renormalised softmax.
    TopKSoftmax,
    /// Logistic function, the k largest after adding the bias; for k > 1 divided by their sum, without
    /// the bias (DeepSeek-V3).
    Sigmoid,
}

/// Groups of neighbouring experts, of which a token takes all of its own from the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Groups of equal size, at most 64.
    pub count: usize,
    /// Groups of a token.
    pub kept: usize,
}

/// A router's rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// Experts per token.
    pub k: usize,
    /// Groups that limit the choice (DeepSeek-V2, arXiv:2405.04434, sec. 2.2.2): a group's score is that of its best expert, with
    /// `Sigmoid` the sum of those of its two best (DeepSeek-V3), biases included. `None`: no limit.
    pub groups: Option<Groups>,
    /// How logits become weights.
    pub score: Score,
    /// Factor of the weights.
    pub scale: f32,
}
