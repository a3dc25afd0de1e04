//! Reader for Python's pickle format that executes nothing: no name in it is looked up, called or constructed.
//!
//! A pickle is a program for a stack machine. This one has the instructions of protocols 2 to 5 that plain data and
//! simple objects use. A class becomes its two names, a call becomes a record of the callee's name and arguments,
//! and an object's state is stored with it; interpreting them is up to the caller. Values are in one list and refer
//! to each other by index, so neither depth nor cycles of hostile input use the stack, and each instruction adds at
//! most one value: memory is bounded by the input's length. Source: the notes on opcodes in CPython's
//! `Lib/pickletools.py`, 3.11.

use std::collections::HashMap;

/// Bytes of the longest name of a class.
const MAX_NAME: usize = 1000;

/// Number of a value.
pub(crate) type Ref = usize;

/// A value; containers hold numbers of values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    Tuple(Vec<Ref>),
    List(Vec<Ref>),
    Dict(Vec<(Ref, Ref)>),
    /// Module and name.
    Class(String, String),
    /// The callee and its argument tuple; then the state that is set on the result, if any.
    Call(Ref, Ref, Option<Ref>),
    /// A reference to data outside the pickle.
    Persistent(Ref),
}

/// All values of a pickle.
#[derive(Debug)]
pub(crate) struct Pickle {
    values: Vec<Value>,
    root: Ref,
}

/// Byte offset of the error, found, wanted.
pub(crate) type Wrong = (usize, String, &'static str);

impl Pickle {
    /// Reads a whole pickle.
    pub(crate) fn read(bytes: &[u8]) -> Result<Pickle, Wrong> {
        Ok(Pickle::read_first(bytes)?.0)
    }

    /// Reads the pickle that `bytes` begin with, and its length.
    pub(crate) fn read_first(bytes: &[u8]) -> Result<(Pickle, usize), Wrong> {
        let mut machine = Machine {
            bytes,
            at: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        };
        let root = machine.run()?;
        let pickle = Pickle {
            values: machine.values,
            root,
        };
        Ok((pickle, machine.at))
    }

    /// All values, in whichever container they are.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        self.values.iter()
    }

    pub(crate) fn root(&self) -> Ref {
        self.root
    }

    pub(crate) fn value(&self, at: Ref) -> &Value {
        &self.values[at]
    }

    /// Arguments and state of a call of this class.
    pub(crate) fn object(
        &self,
        at: Ref,
        [module, name]: [&str; 2],
    ) -> Option<(&[Ref], Option<Ref>)> {
        let Value::Call(class, args, state) = self.value(at) else {
            return None;
        };
        match (self.value(*class), self.value(*args)) {
            (Value::Class(m, n), Value::Tuple(args)) if m == module && n == name => {
                Some((args, *state))
            }
            _ => None,
        }
    }

    /// The value of a string key of a table.
    pub(crate) fn get(&self, table: Ref, key: &str) -> Option<Ref> {
        let Value::Dict(pairs) = self.value(table) else {
            return None;
        };
        let found = pairs
            .iter()
            .rev()
            .find(|(name, _)| self.text(*name) == Some(key));
        found.map(|(_, value)| *value)
    }

    pub(crate) fn text(&self, at: Ref) -> Option<&str> {
        match self.value(at) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn count(&self, at: Ref) -> Option<usize> {
        match self.value(at) {
            Value::Int(n) => usize::try_from(*n).ok(),
            _ => None,
        }
    }

    /// Counts of a tuple.
    pub(crate) fn counts(&self, at: Ref) -> Option<Vec<usize>> {
        match self.value(at) {
            Value::Tuple(items) => items.iter().map(|item| self.count(*item)).collect(),
            _ => None,
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Ref>,
    /// Lengths of the stack at marks.
    marks: Vec<usize>,
    memo: HashMap<usize, Ref>,
}

impl Machine<'_> {
    fn run(&mut self) -> Result<Ref, Wrong> {
        loop {
            let start = self.at;
            let op = self.take(1)?[0];
            if op == b'.' {
                return self.pop();
            }
            self.step(op, start)?;
        }
    }

    /// One instruction: marks and memory here, values in two lists of others.
    fn step(&mut self, op: u8, start: usize) -> Result<(), Wrong> {
        match op {
            // protocol, length of a frame
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'q' => self.remember(1)?,
            b'r' => self.remember(4)?,
            0x94 => {
                let number = self.memo.len();
                let top = self.top()?;
                self.memo.insert(number, top);
            }
            b'h' => self.recall(1)?,
            b'j' => self.recall(4)?,
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(&items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set(&items)?;
            }
            b'b' => self.build()?,
            _ => {
                let value = match self.plain(op)? {
                    Some(value) => value,
                    None => self.made(op, start)?,
                };
                self.push(value);
            }
        }
        Ok(())
    }

    /// Literal values in the program.
    fn plain(&mut self, op: u8) -> Result<Option<Value>, Wrong> {
        Ok(Some(match op {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Int(self.unsigned(1)?),
            b'M' => Value::Int(self.unsigned(2)?),
            b'J' => {
                let bytes = self.take(4)?;
                Value::Int(i32::from_le_bytes(bytes.try_into().expect("4 bytes")).into())
            }
            0x8a => self.long()?,
            b'G' => {
                let bytes = self.take(8)?;
                Value::Float(f64::from_be_bytes(bytes.try_into().expect("8 bytes")))
            }
            0x8c => self.utf8(1)?,
            b'X' => self.utf8(4)?,
            0x8d => self.utf8(8)?,
            b'C' => Value::Bytes(self.counted(1)?.to_vec()),
            b'B' => Value::Bytes(self.counted(4)?.to_vec()),
            0x8e => Value::Bytes(self.counted(8)?.to_vec()),
            b')' => Value::Tuple(Vec::new()),
            b']' => Value::List(Vec::new()),
            // sets are lists here
            0x8f => Value::List(Vec::new()),
            b'}' => Value::Dict(Vec::new()),
            b'c' => Value::Class(self.line()?, self.line()?),
            _ => return Ok(None),
        }))
    }

    /// Values built from others on the stack.
    fn made(&mut self, op: u8, start: usize) -> Result<Value, Wrong> {
        Ok(match op {
            b't' => Value::Tuple(self.since_mark()?),
            0x85 => Value::Tuple(vec![self.pop()?]),
            0x86 => {
                let (b, a) = (self.pop()?, self.pop()?);
                Value::Tuple(vec![a, b])
            }
            0x87 => {
                let (c, b, a) = (self.pop()?, self.pop()?, self.pop()?);
                Value::Tuple(vec![a, b, c])
            }
            0x91 => Value::List(self.since_mark()?),
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let both = (&self.values[module], &self.values[name]);
                let (Value::Text(module), Value::Text(name)) = both else {
                    return Err((start, "a class without names".into(), "two texts"));
                };
                // the names are copied, and could be memoized ones
                if module.len().max(name.len()) > MAX_NAME {
                    return Err((
                        start,
                        "a class with a long name".into(),
                        "at most 1000 bytes",
                    ));
                }
                Value::Class(module.clone(), name.clone())
            }
            // a function's call and a class's first state are the same to us
            b'R' | 0x81 => {
                let (args, class) = (self.pop()?, self.pop()?);
                match self.is_empty_table(class, args) {
                    true => Value::Dict(Vec::new()),
                    false => Value::Call(class, args, None),
                }
            }
            b'Q' => Value::Persistent(self.pop()?),
            other => {
                let found = format!("instruction {other:#04x}");
                return Err((start, found, "one that plain data is written with"));
            }
        })
    }

    /// Whether a call makes an ordered dict, which is then filled like a plain one.
    fn is_empty_table(&self, class: Ref, args: Ref) -> bool {
        let is_table = matches!(&self.values[class], Value::Class(module, name)
            if module == "collections" && name == "OrderedDict");
        is_table && self.values[args] == Value::Tuple(Vec::new())
    }

    fn take(&mut self, count: usize) -> Result<&[u8], Wrong> {
        let end = self.at.checked_add(count);
        let Some(bytes) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            let found = format!("{} bytes", self.bytes.len());
            return Err((self.at, found, "a pickle to its end"));
        };
        self.at += count;
        Ok(bytes)
    }

    fn unsigned(&mut self, width: usize) -> Result<i64, Wrong> {
        let start = self.at;
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(self.take(width)?);
        i64::try_from(u64::from_le_bytes(wide))
            .map_err(|_| (start, "a number above 2^63".into(), "a length"))
    }

    fn counted(&mut self, width: usize) -> Result<&[u8], Wrong> {
        let start = self.at;
        let count = self.unsigned(width)?;
        let count = usize::try_from(count).map_err(|_| {
            (
                start,
                format!("{count} bytes"),
                "as many as fit into memory",
            )
        })?;
        self.take(count)
    }

    fn utf8(&mut self, width: usize) -> Result<Value, Wrong> {
        let start = self.at;
        let text = std::str::from_utf8(self.counted(width)?);
        let text = text.map_err(|error| (start, error.to_string(), "UTF-8"))?;
        Ok(Value::Text(text.to_owned()))
    }

    /// Two's complement of any width; an integer wider than 64 bits is read as infinity, not refused.
    fn long(&mut self) -> Result<Value, Wrong> {
        let bytes = self.counted(1)?;
        let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut wide = [if is_negative { 0xff } else { 0 }; 8];
        if bytes.len() > 8 {
            return Ok(Value::Float(f64::INFINITY));
        }
        wide[..bytes.len()].copy_from_slice(bytes);
        Ok(Value::Int(i64::from_le_bytes(wide)))
    }

    fn line(&mut self) -> Result<String, Wrong> {
        let start = self.at;
        let rest = &self.bytes[start..];
        let Some(length) = rest.iter().position(|&b| b == b'\n') else {
            return Err((start, "no end of line".into(), "a name"));
        };
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.take(1)?;
        Ok(text)
    }

    fn push(&mut self, value: Value) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    fn pop(&mut self) -> Result<Ref, Wrong> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let value = self.stack.pop().filter(|_| self.stack.len() >= floor);
        value.ok_or((self.at, "an empty stack".into(), "a value"))
    }

    fn top(&self) -> Result<Ref, Wrong> {
        let top = self.stack.last().copied();
        top.ok_or((self.at, "an empty stack".into(), "a value"))
    }

    fn since_mark(&mut self) -> Result<Vec<Ref>, Wrong> {
        let mark = self.marks.pop();
        let mark = mark.ok_or((self.at, "no mark".into(), "a mark"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn remember(&mut self, width: usize) -> Result<(), Wrong> {
        let number = self.unsigned(width)?;
        let top = self.top()?;
        // memory grows per instruction, whatever the index
        self.memo
            .insert(usize::try_from(number).unwrap_or(usize::MAX), top);
        Ok(())
    }

    fn recall(&mut self, width: usize) -> Result<(), Wrong> {
        let (start, number) = (self.at, self.unsigned(width)?);
        let found = usize::try_from(number).ok();
        let Some(&value) = found.and_then(|number| self.memo.get(&number)) else {
            return Err((start, format!("memory {number}"), "one that was written"));
        };
        self.stack.push(value);
        Ok(())
    }

    fn append(&mut self, items: &[Ref]) -> Result<(), Wrong> {
        let list = self.top()?;
        match &mut self.values[list] {
            Value::List(list) => list.extend(items),
            // collections made by a call, such as ordered ones, are not needed here
            Value::Call(..) => {}
            _ => return Err((self.at, "no list".into(), "a list to add to")),
        }
        Ok(())
    }

    fn set(&mut self, items: &[Ref]) -> Result<(), Wrong> {
        let table = self.top()?;
        if !items.len().is_multiple_of(2) {
            return Err((self.at, "a key without a value".into(), "pairs"));
        }
        let pairs = items.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        match &mut self.values[table] {
            Value::Dict(table) => table.extend(pairs),
            Value::Call(..) => {}
            _ => return Err((self.at, "no table".into(), "a table to add to")),
        }
        Ok(())
    }

    fn build(&mut self) -> Result<(), Wrong> {
        let state = self.pop()?;
        let object = self.top()?;
        match &mut self.values[object] {
            Value::Call(_, _, place) => *place = Some(state),
            // attributes of an ordered table, such as the versions of a state_dict
            Value::Dict(_) => {}
            _ => return Err((self.at, "no object".into(), "an object to set the state of")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Pickle {
        Pickle::read(bytes).unwrap()
    }

    /// `pickle.dumps({"a": (1, -2, 300, 70000), "b": [1.5, None, True], "c": 2**40}, 4)`, CPython 3.11.
    #[test]
    fn plain_data_is_what_python_wrote() {
        let bytes = b"\x80\x04\x955\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00t\x94\x8c\x01b\x94]\x94(G?\xf8\x00\x00\x00\x00\x00\x00N\x88e\x8c\x01c\x94\x8a\x06\x00\x00\x00\x00\x00\x01u.";
        let pickle = read(bytes);
        let get = |key| pickle.value(pickle.get(pickle.root(), key).unwrap());
        let Value::Tuple(items) = get("a") else {
            panic!("no tuple");
        };
        let numbers: Vec<&Value> = items.iter().map(|item| pickle.value(*item)).collect();
        let want = [1, -2, 300, 70000].map(Value::Int);
        assert_eq!(numbers, want.iter().collect::<Vec<_>>());
        assert_eq!(get("c"), &Value::Int(1 << 40));
        let Value::List(items) = get("b") else {
            panic!("no list");
        };
        let found = items.iter().map(|item| pickle.value(*item).clone());
        let want = [Value::Float(1.5), Value::None, Value::Bool(true)];
        assert_eq!(found.collect::<Vec<_>>(), want);
    }

    /// A call that unpickling would execute is a mere record of names here.
    #[test]
    fn a_pickle_that_calls_the_system_is_data() {
        let pickle = read(b"cposix\nsystem\n(X\x08\x00\x00\x00rm -rf /tR.");
        assert!(pickle.object(pickle.root(), ["torch", "Size"]).is_none());
        let (args, _) = pickle.object(pickle.root(), ["posix", "system"]).unwrap();
        assert_eq!(args.len(), 1);
    }

    #[test]
    fn cuts_and_flips_end_in_values_or_errors() {
        let whole = b"\x80\x04}\x94(\x8c\x01a\x94(K\x01J\xfe\xff\xff\xfft\x94\x8c\x01b\x94]\x94(G?\xf8\0\0\0\0\0\0N\x88e\x8c\x01oc__main__\nC\n)\x81}(h\x01h\x02ub\x8c\x01c\x94\x8a\x06\0\0\0\0\0\x01u.";
        read(whole);
        for at in 0..whole.len() {
            assert!(Pickle::read(&whole[..at]).is_err());
            for byte in 0..=255 {
                let mut bytes = whole.to_vec();
                bytes[at] = byte;
                let _ = Pickle::read(&bytes);
            }
        }
    }

    #[test]
    fn depth_cycles_and_lengths_of_hostile_input_are_no_danger() {
        let mut deep = vec![b'('; 1_000_000];
        deep.extend(vec![b't'; 1_000_000]);
        deep.push(b'.');
        read(&deep);
        // a list that holds itself
        read(b"]q\x00h\x00a.");
        for long in [
            &b"X\xff\xff\xff\xff"[..],
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(Pickle::read(long).is_err());
        }
    }
}
