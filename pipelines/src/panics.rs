//! The panic hook: what a library catches and tells elsewhere is not printed as well.

/// Installs it over the one that is there, which goes on telling all other panics.
pub(crate) fn hide_expected() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !curate::is_panic_expected() {
            before(panic);
        }
    }));
}
