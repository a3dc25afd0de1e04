//! curate
