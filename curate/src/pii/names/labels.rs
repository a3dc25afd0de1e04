//! Labels of tokens: outside, a name of one token, and the beginning, inside and end of names and addresses.

use super::tokens::Class;

/// Number of labels.
pub(super) const LABELS: usize = 8;

/// No part of a name or address.
pub(super) const OUTSIDE: usize = 0;
/// A name of one token.
pub(super) const NAME: usize = 1;
/// Begin, inside and end of a longer name.
pub(super) const NAME_BEGIN: usize = 2;
pub(super) const NAME_INSIDE: usize = 3;
pub(super) const NAME_END: usize = 4;
/// Begin, inside and end of an address, which has two tokens or more.
pub(super) const ADDRESS_BEGIN: usize = 5;
pub(super) const ADDRESS_INSIDE: usize = 6;
pub(super) const ADDRESS_END: usize = 7;

/// Labels as bits.
pub(super) const fn bits<const N: usize>(labels: [usize; N]) -> u8 {
    let (mut all, mut i) = (0u8, 0);
    while i < N {
        all |= 1 << labels[i];
        i += 1;
    }
    all
}

/// Labels before which a name or address is at its end.
const CLOSED: [usize; 4] = [OUTSIDE, NAME, NAME_END, ADDRESS_END];
/// Labels that the last token of a run may have.
pub(super) const LAST: u8 = bits(CLOSED);
/// Labels that the first token of a run may have.
pub(super) const FIRST: u8 = bits([OUTSIDE, NAME, NAME_BEGIN, ADDRESS_BEGIN]);

/// Labels that may follow a label.
pub(super) const fn next(label: usize) -> u8 {
    match label {
        NAME_BEGIN | NAME_INSIDE => bits([NAME_INSIDE, NAME_END]),
        ADDRESS_BEGIN | ADDRESS_INSIDE => bits([ADDRESS_INSIDE, ADDRESS_END]),
        // the closed ones
        OUTSIDE | NAME | NAME_END | ADDRESS_END.. => FIRST,
    }
}

/// Labels that a token of the class may have.
pub(super) const fn of_class(class: Class) -> u8 {
    match class {
        Class::Capital => u8::MAX,
        Class::Number => bits([OUTSIDE, ADDRESS_BEGIN, ADDRESS_INSIDE, ADDRESS_END]),
        // names may have `van` inside, addresses end in `st`
        Class::Word => bits([OUTSIDE, NAME_INSIDE, ADDRESS_INSIDE, ADDRESS_END]),
        Class::Sign => bits([OUTSIDE, NAME_INSIDE, ADDRESS_INSIDE]),
        Class::Line => bits([OUTSIDE, ADDRESS_INSIDE]),
        Class::Wall => bits([OUTSIDE]),
    }
}
