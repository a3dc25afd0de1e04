//! The panic hook: a panic that is caught, and whose message is reported elsewhere, is not printed as well.

/// Installs it over the one that is there, which prints all other panics.
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
