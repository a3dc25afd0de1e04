//! Paths in the TOML of a job.

use toml::Value;

/// `a.b[0].c` of the keys on the way to a value.
pub(super) fn dotted(keys: &[String]) -> String {
    let mut path = String::new();
    for k in keys {
        if k.parse::<usize>().is_ok() {
            path.push_str(&format!("[{k}]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(k);
        }
    }
    path
}

/// A value with its type on one line, of at most 80 characters.
pub(super) fn short(v: &Value) -> String {
    let text = format!("{} {}", v.type_str(), v.to_string().replace('\n', " "));
    match text.char_indices().nth(80) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

/// The value at the end of a path.
pub(super) fn get<'a>(v: &'a Value, keys: &[String]) -> Option<&'a Value> {
    keys.iter().try_fold(v, |v, k| match v {
        Value::Table(t) => t.get(k),
        Value::Array(a) => a.get(k.parse::<usize>().ok()?),
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_) => None,
    })
}

/// Removes the value at the end of a path; false if there is none.
pub(super) fn remove(v: &mut Value, keys: &[String]) -> bool {
    let Some((last, path)) = keys.split_last() else {
        return false;
    };
    let mut place = v;
    for k in path {
        let next = match place {
            Value::Table(t) => t.get_mut(k),
            Value::Array(a) => k.parse::<usize>().ok().and_then(|i| a.get_mut(i)),
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_) => None,
        };
        match next {
            Some(n) => place = n,
            None => return false,
        }
    }
    match place {
        Value::Table(t) => t.remove(last).is_some(),
        Value::Array(a) => match last.parse::<usize>() {
            Ok(i) if i < a.len() => {
                a.remove(i);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

/// Adds the paths of all values in `v` that hold no others; `at` leads to it.
pub(super) fn leaves(v: &Value, at: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
    let children: Vec<(String, &Value)> = match v {
        Value::Table(t) => t.iter().map(|(k, v)| (k.clone(), v)).collect(),
        Value::Array(a) => a
            .iter()
            .enumerate()
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        _ => {
            out.push(at.clone());
            return;
        }
    };
    for (k, v) in children {
        at.push(k);
        leaves(v, at, out);
        at.pop();
    }
}
