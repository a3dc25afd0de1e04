//! Writer of Python's pickle format, protocol 2, with the instructions that CPython's own pickler uses for plain data, classes and
//! objects: the pickle of a tensor has the bytes of `torch.save`. Source: `Lib/pickle.py` of CPython 3.11.

use std::collections::HashMap;

/// A value to pickle.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Tuple(Vec<Object>),
    List(Vec<Object>),
    Dict(Vec<(Object, Object)>),
    /// A class or function: module and name.
    Global([&'static str; 2]),
    /// Result of a call of a function, module and name, with these arguments.
    Call([&'static str; 2], Vec<Object>),
    /// An object of a class, module and name, made without arguments, and the state that is then set, if any.
    New([&'static str; 2], Option<Box<Object>>),
    /// A reference to data outside the pickle.
    Persistent(Box<Object>),
}

impl Object {
    pub(crate) fn text(text: &str) -> Object {
        Object::Text(text.to_owned())
    }

    /// A dict with names as keys, in this order.
    pub(crate) fn dict<'k>(pairs: impl IntoIterator<Item = (&'k str, Object)>) -> Object {
        let pairs = pairs.into_iter();
        Object::Dict(
            pairs
                .map(|(key, value)| (Object::text(key), value))
                .collect(),
        )
    }

    /// An object whose state is its attributes.
    pub(crate) fn with<'k>(
        class: [&'static str; 2],
        attributes: impl IntoIterator<Item = (&'k str, Object)>,
    ) -> Object {
        Object::New(class, Some(Box::new(Object::dict(attributes))))
    }

    /// A whole number; Python has no largest one, and no size in memory or on a disk is above 2^63.
    pub(crate) fn count(count: usize) -> Object {
        Object::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Tuple of whole numbers.
    pub(crate) fn counts(counts: &[usize]) -> Object {
        Object::Tuple(counts.iter().map(|&count| Object::count(count)).collect())
    }

    /// The bytes of the pickle.
    pub(crate) fn pickled(&self) -> Vec<u8> {
        let mut pickler = Pickler {
            out: vec![0x80, 2],
            texts: HashMap::new(),
            globals: HashMap::new(),
            remembered: 0,
        };
        pickler.put(self);
        pickler.out.push(b'.');
        pickler.out
    }
}

/// Items of a list or dict that one instruction adds.
const BATCH: usize = 1000;

struct Pickler<'o> {
    out: Vec<u8>,
    /// Numbers of values that were written and can be recalled.
    texts: HashMap<&'o str, u32>,
    globals: HashMap<[&'static str; 2], u32>,
    remembered: u32,
}

impl<'o> Pickler<'o> {
    fn put(&mut self, object: &'o Object) {
        match object {
            Object::None => self.out.push(b'N'),
            Object::Bool(false) => self.out.push(0x89),
            Object::Bool(true) => self.out.push(0x88),
            Object::Int(number) => self.put_int(*number),
            Object::Float(number) => {
                self.out.push(b'G');
                self.out.extend(number.to_be_bytes());
            }
            Object::Text(text) => self.put_text(text),
            Object::Tuple(items) => self.put_tuple(items),
            Object::List(items) => {
                self.out.push(b']');
                self.remember();
                self.batches(items, [b'a', b'e'], Self::put);
            }
            Object::Dict(pairs) => {
                self.out.push(b'}');
                self.remember();
                self.batches(pairs, [b's', b'u'], |pickler, (key, value)| {
                    pickler.put(key);
                    pickler.put(value);
                });
            }
            Object::Global(name) => self.put_global(*name),
            Object::Call(function, arguments) => {
                self.put_global(*function);
                self.put_tuple(arguments);
                self.out.push(b'R');
                self.remember();
            }
            Object::New(class, state) => {
                self.put_global(*class);
                self.out.extend([b')', 0x81]);
                self.remember();
                if let Some(state) = state {
                    self.put(state);
                    self.out.push(b'b');
                }
            }
            Object::Persistent(id) => {
                self.put(id);
                self.out.push(b'Q');
            }
        }
    }

    /// Items with the instruction for one or for several.
    fn batches<T>(
        &mut self,
        items: &'o [T],
        [one, several]: [u8; 2],
        put: impl Fn(&mut Self, &'o T),
    ) {
        for batch in items.chunks(BATCH) {
            if let [item] = batch {
                put(self, item);
                self.out.push(one);
                continue;
            }
            self.out.push(b'(');
            batch.iter().for_each(|item| put(self, item));
            self.out.push(several);
        }
    }

    fn put_int(&mut self, number: i64) {
        if let Ok(byte) = u8::try_from(number) {
            self.out.extend([b'K', byte]);
        } else if let Ok(short) = u16::try_from(number) {
            self.out.push(b'M');
            self.out.extend(short.to_le_bytes());
        } else if let Ok(number) = i32::try_from(number) {
            self.out.push(b'J');
            self.out.extend(number.to_le_bytes());
        } else {
            let bytes = number.to_le_bytes();
            // bytes that repeat the sign of those before them are left out
            let is_spare = |end: &usize| {
                let sign = if bytes[end - 2] & 0x80 == 0 { 0 } else { 0xff };
                bytes[end - 1] == sign
            };
            let spare = (2..=bytes.len()).rev().take_while(is_spare).count();
            let bytes = &bytes[..bytes.len() - spare];
            self.out.push(0x8a);
            self.out.extend(u8::try_from(bytes.len()));
            self.out.extend(bytes);
        }
    }

    fn put_text(&mut self, text: &'o str) {
        if let Some(&number) = self.texts.get(text) {
            return self.recall(number);
        }
        self.out.push(b'X');
        // names: far below 4 GiB
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.out.extend(length.to_le_bytes());
        self.out.extend(text.bytes());
        self.texts.insert(text, self.remembered);
        self.remember();
    }

    fn put_global(&mut self, name: [&'static str; 2]) {
        if let Some(&number) = self.globals.get(&name) {
            return self.recall(number);
        }
        let [module, name_in_it] = name;
        self.out
            .extend(format!("c{module}\n{name_in_it}\n").into_bytes());
        self.globals.insert(name, self.remembered);
        self.remember();
    }

    fn put_tuple(&mut self, items: &'o [Object]) {
        let short = match items.len() {
            0 => return self.out.push(b')'),
            1 => Some(0x85),
            2 => Some(0x86),
            3 => Some(0x87),
            _ => None,
        };
        if short.is_none() {
            self.out.push(b'(');
        }
        items.iter().for_each(|item| self.put(item));
        self.out.push(short.unwrap_or(b't'));
        self.remember();
    }

    /// Gives the value on top of the stack the next number.
    fn remember(&mut self) {
        self.numbered([b'q', b'r'], self.remembered);
        self.remembered += 1;
    }

    fn recall(&mut self, number: u32) {
        self.numbered([b'h', b'j'], number);
    }

    fn numbered(&mut self, [short, long]: [u8; 2], number: u32) {
        match u8::try_from(number) {
            Ok(number) => self.out.extend([short, number]),
            Err(_) => {
                self.out.push(long);
                self.out.extend(number.to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::torch::pickle::{Pickle, Value};

    /// `pickle.dumps({"a": (1, -2, 300, 70000), "b": [1.5, None, True], "c": [2**40, -2**39], "d": {"a": [()]}}, 2)`, CPython 3.11.
    #[test]
    fn plain_data_has_the_bytes_that_python_writes() {
        let numbers = [1, -2, 300, 70000].map(Object::Int);
        let mixed = vec![Object::Float(1.5), Object::None, Object::Bool(true)];
        let object = Object::dict([
            ("a", Object::Tuple(numbers.to_vec())),
            ("b", Object::List(mixed)),
            (
                "c",
                Object::List(vec![Object::Int(1 << 40), Object::Int(-1 << 39)]),
            ),
            (
                "d",
                Object::dict([("a", Object::List(vec![Object::Tuple(Vec::new())]))]),
            ),
        ]);
        let want = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00tq\x02X\x01\x00\x00\x00bq\x03]q\x04(G?\xf8\x00\x00\x00\x00\x00\x00N\x88eX\x01\x00\x00\x00cq\x05]q\x06(\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x05\x00\x00\x00\x00\x80eX\x01\x00\x00\x00dq\x07}q\x08h\x01]q\x09)asu.";
        assert_eq!(object.pickled(), want);
    }

    #[test]
    fn many_items_and_names_come_back() {
        let names: Vec<String> = (0..2500).map(|i| format!("name {i}")).collect();
        let pairs = names.iter().enumerate();
        let pairs = pairs.map(|(i, name)| (name.as_str(), Object::count(i)));
        let twice: Vec<Object> = names
            .iter()
            .chain(&names)
            .map(|n| Object::text(n))
            .collect();
        let object = Object::Tuple(vec![
            Object::dict(pairs),
            Object::List(twice),
            Object::New(["m", "C"], None),
            Object::with(["m", "C"], [("x", Object::None)]),
        ]);
        let read = Pickle::read(&object.pickled()).unwrap();
        let Value::Tuple(parts) = read.value(read.root()) else {
            panic!("no tuple");
        };
        for (i, name) in names.iter().enumerate() {
            let value = read.get(parts[0], name).unwrap();
            assert_eq!(read.count(value), Some(i));
        }
        let Value::List(items) = read.value(parts[1]) else {
            panic!("no list");
        };
        let found: Vec<&str> = items.iter().map(|item| read.text(*item).unwrap()).collect();
        let want: Vec<&str> = names.iter().chain(&names).map(String::as_str).collect();
        assert_eq!(found, want);
        assert_eq!(read.object(parts[2], ["m", "C"]), Some((&[][..], None)));
        assert!(read.object(parts[3], ["m", "C"]).unwrap().1.is_some());
    }
}
