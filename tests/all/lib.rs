//! Integration tests only; see `main.rs`.
