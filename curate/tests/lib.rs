//! Tests of the curator through its public interface, as a package of their own: they need no optimisation, the curator
//! does.
