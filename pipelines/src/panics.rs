//! The panic hook: a panic that is caught, and whose message is reported elsewhere, is not printed as well.

/// Installs it over the one that is there, which prints all other panics.
pub(crate) fn hide_expected() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !curate::is_panic_expected() {
            before(panic);
        }
    }));
}
