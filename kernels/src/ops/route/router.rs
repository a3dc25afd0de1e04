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

/// A router's rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// Experts per token.
    pub k: usize,
    /// How logits become weights.
    pub score: Score,
    /// Factor of the weights.
    pub scale: f32,
}
