//! Descriptors: the arguments of ops beside their tensors, as plain structs; ops check them and backends read them.
//! A struct that only one op uses is in the op's folder.

pub(crate) mod activation;
pub(crate) mod alibi;
pub(crate) mod attention;
pub(crate) mod dropout;
pub(crate) mod frequencies;
pub(crate) mod heads;
pub(crate) mod numbers;
pub(crate) mod position_bias;
pub(crate) mod rope;
