//! NumPy's `.npy` version 1.0 for 2-D or 1-D integer arrays: header text, then the numbers, little-endian, C order.
//!
//! ```text
//! 0  6 bytes  93 "NUMPY"      8   u16  bytes of the header text
//! 6  u8 u8    1 0             10       {'descr': '<i4', 'fortran_order': False, 'shape': (5, 2), } spaces, line break
//! ```
//! The numbers start at a multiple of 64; numpy leaves room for the first dimension to grow to 21 digits, and so do we,
//! so that the files are numpy's byte for byte. Source: numpy 2.2 `numpy/lib/format.py` (facts).

use crate::array::Array;
use crate::dataset::stored::StoredFile;
use crate::error::{At, Error, Result};
use bytemuck::Pod;
use std::io::Write;
use std::path::Path;

/// Element type of an array: an integer, or a row of them.
pub(super) trait Element: Pod + Send + Sync {
    /// `descr`.
    const DESCR: &'static str;
    /// Numbers per row; `None` where the array has one dimension.
    const COLUMNS: Option<usize>;
}

macro_rules! elements {
    ($($t:ty, $descr:literal, $columns:expr;)*) => {
        $(impl Element for $t {
            const DESCR: &'static str = $descr;
            const COLUMNS: Option<usize> = $columns;
        })*
    };
}
elements! {
    i16, "<i2", None;
    i32, "<i4", None;
    u32, "<u4", None;
    i64, "<i8", None;
    [i32; 2], "<i4", Some(2);
    [i64; 2], "<i8", Some(2);
    [u32; 3], "<u4", Some(3);
}

/// Everything before the numbers.
fn header<T: Element>(rows: usize) -> Vec<u8> {
    let digits = rows.to_string();
    let shape = match T::COLUMNS {
        None => format!("({digits},)"),
        Some(c) => format!("({digits}, {c})"),
    };
    let mut text = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}",
        T::DESCR
    );
    text.push_str(&" ".repeat(21usize.saturating_sub(digits.len())));
    let padding = 64 - (10 + text.len() + 1) % 64;
    text.push_str(&" ".repeat(padding));
    text.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out
}

/// Writes the array.
pub(super) fn write<T: Element>(out: &mut impl Write, array: &[T], path: &Path) -> Result<()> {
    out.write_all(&header::<T>(array.len())).at(path)?;
    out.write_all(bytemuck::cast_slice(array)).at(path)
}

/// Reads an array that must be of this type and have `rows` rows. Memory is allocated only after the file's size is
/// verified.
///
/// # Errors
/// `Io`; `Memory`; `Format` with the header or size found.
pub(super) fn read<T: Element>(path: &Path, rows: usize) -> Result<Array<T>> {
    let file = StoredFile::open(path)?;
    let length = file.len();
    let wrong = |offset: u64, field: &'static str, found: String, wanted: String| Error::Format {
        path: path.to_path_buf(),
        offset,
        field,
        found,
        wanted,
    };
    let mut head = [0; 10];
    let n = usize::try_from(length.min(10)).unwrap_or(10);
    file.read_at(0, &mut head[..n])?;
    if n < 10 || head[..8] != *b"\x93NUMPY\x01\x00" {
        let found = format!("{:02x?}", &head[..n.min(8)]);
        return Err(wrong(0, "magic", found, "93 NUMPY 01 00".into()));
    }
    let text_bytes = u16::from_le_bytes([head[8], head[9]]);
    let end = 10 + u64::from(text_bytes);
    let mut text = vec![0; usize::from(text_bytes)];
    if end <= length {
        file.read_at(10, &mut text)?;
    }
    let found = std::str::from_utf8(&text).unwrap_or_default().trim_end();
    let ours = header::<T>(rows);
    let wanted = String::from_utf8_lossy(&ours[10..]).trim_end().to_string();
    if found != wanted {
        return Err(wrong(10, "header", found.into(), wanted));
    }
    let size = (rows as u64)
        .saturating_mul(size_of::<T>() as u64)
        .saturating_add(end);
    if length != size {
        let found = format!("{length} bytes");
        let offset = length.min(size);
        return Err(wrong(offset, "file size", found, format!("{size} bytes")));
    }
    let mut array = Array::<T>::zeros("a cached index", rows as u64)?;
    let bytes = bytemuck::cast_slice_mut::<T, u8>(array.as_mut());
    file.read_at(end, bytes)?;
    Ok(array)
}

/// Number of rows of an existing file of this type, from its size.
///
/// # Errors
/// `Io`; `Format` if they are more than `most`.
pub(super) fn rows<T: Element>(path: &Path, most: u64) -> Result<usize> {
    let bytes = std::fs::metadata(path).at(path)?.len();
    let rows = bytes.saturating_sub(128) / size_of::<T>() as u64;
    match usize::try_from(rows) {
        Ok(n) if rows <= most => Ok(n),
        _ => Err(Error::Format {
            path: path.to_path_buf(),
            offset: 0,
            field: "file size",
            found: format!("{rows} rows"),
            wanted: format!("at most {most}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // numpy 2.2.6: np.save(b, np.zeros((5, 2), np.int32)) and np.zeros(12345, np.uint32)
    #[test]
    fn headers_are_numpys() {
        let h = header::<[i32; 2]>(5);
        assert_eq!((h.len(), &h[..10]), (128, &b"\x93NUMPY\x01\x00v\x00"[..]));
        assert!(h.starts_with(
            b"\x93NUMPY\x01\x00v\x00{'descr': '<i4', 'fortran_order': False, 'shape': (5, 2), }   "
        ));
        assert_eq!(h.last(), Some(&b'\n'));
        assert_eq!(header::<u32>(12345).len(), 128);
    }

    #[test]
    fn another_type_shape_or_size_is_refused_with_both_sides() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        let mut bytes = Vec::new();
        write(&mut bytes, &[1i32, 2, 3], &path).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(&read::<i32>(&path, 3).unwrap()[..], [1, 2, 3]);
        for bad in [
            read::<u32>(&path, 3).map(|_| ()),
            read::<i32>(&path, 4).map(|_| ()),
            read::<[i32; 2]>(&path, 3).map(|_| ()),
        ] {
            let text = bad.unwrap_err().to_string();
            assert!(
                text.contains("'descr': '<i4'") && text.contains("(3,)"),
                "{text}"
            );
        }
        for cut in [0, 5, 9, 50, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert!(read::<i32>(&path, 3).is_err(), "cut at {cut}");
        }
    }
}
