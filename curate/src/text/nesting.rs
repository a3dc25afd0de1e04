//! A bound on the depth of recursive parsers.

/// A parser whose rules call themselves.
pub(crate) trait Nesting: Sized {
    /// Deeper nesting is refused: parsing recurses.
    const MOST_DEPTH: usize;

    /// Levels at this point.
    fn depth(&mut self) -> &mut usize;

    /// The error at this point: what was found, and what is wanted.
    fn wrong(&self, wanted: &str) -> String;

    /// Parses something one level deeper.
    fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        if *self.depth() == Self::MOST_DEPTH {
            return Err(self.wrong(&format!("at most {} levels", Self::MOST_DEPTH)));
        }
        *self.depth() += 1;
        let parsed = parse(self);
        *self.depth() -= 1;
        parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels of brackets.
    struct Brackets<'a> {
        rest: &'a [u8],
        depth: usize,
    }

    impl Nesting for Brackets<'_> {
        const MOST_DEPTH: usize = 3;

        fn depth(&mut self) -> &mut usize {
            &mut self.depth
        }

        fn wrong(&self, wanted: &str) -> String {
            format!("{} bytes left, wanted {wanted}", self.rest.len())
        }
    }

    impl Brackets<'_> {
        fn levels(&mut self) -> Result<usize, String> {
            match self.rest.split_first() {
                Some((b'(', rest)) => {
                    self.rest = rest;
                    Ok(1 + self.nested(Self::levels)?)
                }
                _ => Ok(0),
            }
        }
    }

    #[test]
    fn levels_up_to_the_bound_are_parsed_and_one_more_is_not() {
        let parse = |text: &str| {
            let mut parser = Brackets {
                rest: text.as_bytes(),
                depth: 0,
            };
            let parsed = parser.levels();
            assert_eq!(parser.depth, 0);
            parsed
        };
        assert_eq!(parse("((("), Ok(3));
        assert_eq!(
            parse("((((("),
            Err("1 bytes left, wanted at most 3 levels".to_string())
        );
    }
}
