//! Marks panics that are expected and caught: those of the library that reads tokenizers.
//!
//! A caught panic is still printed by the process's panic hook, which a library should not replace. So a
//! thread-local flag marks calls that catch panics, and a program may check [`is_panic_expected`] in its hook to
//! print nothing.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Nesting depth of panic-catching calls on this thread.
    static CATCHING: Cell<u32> = const { Cell::new(0) };
}

/// True in a panic hook if this crate catches the panic and reports it with the file that caused it.
pub fn is_panic_expected() -> bool {
    CATCHING.with(Cell::get) > 0
}

/// Guard that counts a panic-catching call, also if it unwinds.
struct Catching;

impl Catching {
    fn start() -> Catching {
        CATCHING.with(|count| count.set(count.get() + 1));
        Catching
    }
}

impl Drop for Catching {
    fn drop(&mut self) {
        CATCHING.with(|count| count.set(count.get() - 1));
    }
}

/// The result of `work`, or the message of its panic. Nothing that it borrows may be used after a panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let _catching = Catching::start();
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message_and_is_expected_only_meanwhile() {
        assert!(!is_panic_expected());
        assert_eq!(caught(is_panic_expected), Ok(true));
        assert_eq!(
            caught(|| -> u8 { panic!("a {}", "b") }),
            Err("a b".to_string())
        );
        assert_eq!(caught(|| -> u8 { panic!("c") }), Err("c".to_string()));
        assert!(!is_panic_expected());
        let nested = caught(|| (caught(|| -> u8 { panic!("inner") }), is_panic_expected()));
        assert_eq!(nested, Ok((Err("inner".to_string()), true)));
    }
}
