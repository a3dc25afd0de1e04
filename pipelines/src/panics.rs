//! Panic hook: panics that are caught, and whose messages are reported elsewhere, are not printed as well.

/// Installs the hook over the default one, which prints all other panics.
pub(crate) fn hide_expected() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_expected =
            curate::is_panic_expected() || index::is_panic_expected() || train::is_panic_expected();
        if !is_expected {
            before(panic);
        }
    }));
}
