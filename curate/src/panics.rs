//! Marks panics that will be caught: of libraries that parse foreign bytes.
//!
//! The process's panic hook, which is not ours to replace, still prints a caught panic. So a thread records when a
//! panic would be no news: a program calls [`is_panic_expected`] in its hook and then stays silent.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Number of calls on this thread that would catch a panic.
    static CATCHING: Cell<u32> = const { Cell::new(0) };
}

/// True in a panic hook if this crate catches the panic and reports it with the record that caused it.
pub fn is_panic_expected() -> bool {
    CATCHING.with(Cell::get) > 0
}

/// Counts a call as long as it is on the stack, whether it returns or unwinds.
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
