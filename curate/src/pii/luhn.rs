//! Luhn's sum (ISO/IEC 7812-1, annex B), of payment cards and national numbers.

/// Whether the sum of the digits, of which every second from the right counts double with its own digits summed, ends with 0.
pub(super) fn is_luhn(digits: impl DoubleEndedIterator<Item = u32>) -> bool {
    let each = digits.rev().enumerate().map(|(i, digit)| {
        let counted = digit << (i % 2);
        if counted > 9 { counted - 9 } else { counted }
    });
    each.sum::<u32>().is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_check_digit_in_ten_is_right() {
        // 7992739871 with its check digit 3; of any number with an even and with an odd count of digits one digit fits
        for (number, check) in [(7_992_739_871_u64, 3), (411_111_111_111_111, 1), (0, 0)] {
            let right = (0..10).filter(|last| {
                let number = (number * 10 + last).to_string();
                is_luhn(number.bytes().map(|b| u32::from(b - b'0')))
            });
            assert_eq!(right.collect::<Vec<u64>>(), [check], "{number}");
        }
    }
}
