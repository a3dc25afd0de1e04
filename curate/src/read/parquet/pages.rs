//! Checks the declared size of Parquet pages before the library allocates memory for them.
//!
//! A header declares its page's decompressed size, and that many bytes are allocated. The limit is the size of two
//! records, or sixteen times the page's bytes in the file: texts compress to a fifth, seldom to a tenth. Elements
//! of lists are assembled row by row, so their number is bounded as well. The library decompresses gzip, brotli and frames
//! of LZ4 without limit: such pages are measured first.
//!
//! Format: PageHeader of parquet-format 2.11 (parquet.thrift) in Thrift's compact protocol: `type`, `uncompressed_page_size`
//! and `compressed_page_size` are the fields 1 to 3, all i32; in the headers of the kinds of pages `num_values` is field 1.

use std::io::Read;
use std::ops::Range;

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

/// Bytes of a header that are read.
pub(super) const HEAD: usize = 64;
/// Largest growth of a page that is larger than two records.
const MOST_GROWTH: u64 = 16;
/// Elements of lists that a small page may have.
const FEW_VALUES: u64 = 4 << 20;
/// Bytes that are decompressed at once to measure a page.
const BUFFER: usize = 16 << 10;
/// Types of the compact protocol.
const I32: u8 = 5;
const STRUCT: u8 = 12;

/// Codecs that the library decompresses without limit.
#[derive(Clone, Copy)]
enum Unlimited {
    Gzip,
    Brotli,
    /// Hadoop's LZ4 has its sizes in the page, but the library takes frames as well.
    Lz4Frame,
}

/// A column of a row group.
struct Column {
    bytes: Range<u64>,
    /// The codec, if its pages are to be measured.
    unlimited: Option<Unlimited>,
    /// Values are elements of lists.
    is_repeated: bool,
}

/// The pages of a file.
pub(super) struct Pages {
    columns: Vec<Column>,
    max: u64,
}

fn refused(why: String) -> ParquetError {
    ParquetError::General(why)
}

impl Pages {
    /// Limits of all columns of a file; `max` is the longest record.
    pub(super) fn of(metadata: &ParquetMetaData, max: usize) -> Pages {
        let groups = metadata.row_groups().iter();
        let mut columns: Vec<Column> = groups.flat_map(columns_of).collect();
        columns.sort_by_key(|column| column.bytes.start);
        Pages {
            columns,
            max: max as u64,
        }
    }

    fn column(&self, offset: u64) -> Option<&Column> {
        let behind = self.columns.partition_point(|c| c.bytes.start <= offset);
        let column = self.columns.get(behind.checked_sub(1)?)?;
        column.bytes.contains(&offset).then_some(column)
    }

    /// Maximum uncompressed bytes of a page with this many compressed bytes.
    fn most(&self, compressed: u64) -> u64 {
        let of_records = self.max.saturating_mul(2);
        of_records.max(compressed.saturating_mul(MOST_GROWTH))
    }

    /// Looks at the header at `offset`, of which `bytes` are the first ones.
    pub(super) fn check_header(&self, offset: u64, bytes: &[u8]) -> Result<(), ParquetError> {
        let Some(column) = self.column(offset) else {
            return Ok(());
        };
        let page = Declared::read(bytes)
            .ok_or_else(|| refused(format!("no page header at byte {offset}")))?;
        let most = self.most(page.compressed);
        if page.uncompressed > most {
            let Declared {
                uncompressed,
                compressed,
                ..
            } = page;
            return Err(refused(format!(
                "a page of {uncompressed} bytes out of {compressed} at byte {offset}, more than {most}"
            )));
        }
        let most = FEW_VALUES.max(page.uncompressed.saturating_mul(8));
        if column.is_repeated && page.values > most {
            return Err(refused(format!(
                "a page of {} elements in {} bytes at byte {offset}, more than {most}",
                page.values, page.uncompressed
            )));
        }
        Ok(())
    }

    /// Measures the page whose compressed bytes start at `offset`, if that is not done by the library.
    pub(super) fn check_body(&self, offset: u64, bytes: &[u8]) -> Result<(), ParquetError> {
        let Some(codec) = self.column(offset).and_then(|column| column.unlimited) else {
            return Ok(());
        };
        let most = self.most(bytes.len() as u64);
        if is_longer(codec, bytes, most) {
            return Err(refused(format!(
                "a page of more than {most} bytes out of {} at byte {offset}",
                bytes.len()
            )));
        }
        Ok(())
    }
}

/// Whether a page decompresses to more than `most` bytes. The library reports one that cannot be decompressed.
fn is_longer(codec: Unlimited, bytes: &[u8], most: u64) -> bool {
    let mut decoder: Box<dyn Read + '_> = match codec {
        Unlimited::Gzip => Box::new(flate2::read::MultiGzDecoder::new(bytes)),
        Unlimited::Brotli => Box::new(brotli_decompressor::Decompressor::new(bytes, BUFFER)),
        Unlimited::Lz4Frame => Box::new(lz4_flex::frame::FrameDecoder::new(bytes)),
    };
    let mut buffer = [0; BUFFER];
    let mut length = 0;
    loop {
        match decoder.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(n) => length += n as u64,
        }
        if length > most {
            return true;
        }
    }
}

fn columns_of(group: &RowGroupMetaData) -> impl Iterator<Item = Column> {
    group.columns().iter().map(|column| {
        let size = u64::try_from(column.compressed_size()).unwrap_or(0);
        let start = start_of_column(column);
        Column {
            bytes: start..start.saturating_add(size),
            unlimited: match column.compression() {
                Compression::GZIP(_) => Some(Unlimited::Gzip),
                Compression::BROTLI(_) => Some(Unlimited::Brotli),
                Compression::LZ4 => Some(Unlimited::Lz4Frame),
                Compression::UNCOMPRESSED
                | Compression::SNAPPY
                | Compression::LZO
                | Compression::ZSTD(_)
                | Compression::LZ4_RAW => None,
            },
            is_repeated: column.column_descr().max_rep_level() > 0,
        }
    })
}

/// Declarations of a header.
#[derive(Debug, PartialEq)]
struct Declared {
    uncompressed: u64,
    compressed: u64,
    values: u64,
}

impl Declared {
    /// None if the first fields are not those of a page.
    fn read(bytes: &[u8]) -> Option<Declared> {
        let mut at = Compact { bytes, field: 0 };
        let mut sizes = [0; 3];
        for (id, size) in (1..).zip(&mut sizes) {
            if at.next_field()? != (id, I32) {
                return None;
            }
            *size = at.number()?;
        }
        let mut next = at.next_field()?;
        if next == (4, I32) {
            at.number()?;
            next = at.next_field()?;
        }
        // index pages have no values, and the library passes over them
        let values = match next {
            (5 | 7 | 8, STRUCT) => {
                at.field = 0;
                match at.next_field()? {
                    (1, I32) => at.number()?,
                    _ => return None,
                }
            }
            (6, STRUCT) => 0,
            _ => return None,
        };
        let size = |n: i64| u64::try_from(n).ok();
        Some(Declared {
            uncompressed: size(sizes[1])?,
            compressed: size(sizes[2])?,
            values: size(values)?,
        })
    }
}

/// Thrift's compact protocol, as far as page headers need it.
struct Compact<'a> {
    bytes: &'a [u8],
    field: u64,
}

impl Compact<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// Number and type of the next field.
    fn next_field(&mut self) -> Option<(u64, u8)> {
        let byte = self.byte()?;
        let delta = u64::from(byte >> 4);
        // long steps are for structs of more than fifteen fields
        if delta == 0 {
            return None;
        }
        self.field += delta;
        Some((self.field, byte & 15))
    }

    /// A zigzag number.
    fn number(&mut self) -> Option<i64> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                let half = i64::try_from(value >> 1).ok()?;
                return Some(if value & 1 == 0 { half } else { -half - 1 });
            }
        }
        None
    }
}

/// Offset of a column's first page.
pub(crate) fn start_of_column(column: &ColumnChunkMetaData) -> u64 {
    let data = column.data_page_offset();
    // a dictionary precedes the data; some writers use 0 for "none"
    let dictionary = column.dictionary_page_offset().filter(|o| *o > 0);
    u64::try_from(dictionary.map_or(data, |d| d.min(data))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pages_are_measured_up_to_the_limit_and_no_further() {
        let zeros = vec![0; 1 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&zeros).unwrap();
        let mut frame = lz4_flex::frame::FrameEncoder::new(Vec::new());
        frame.write_all(&zeros).unwrap();
        // as brotli 1.2.1 (PyPI) compresses a mebibyte of zeros
        let brotli = [
            0x5b, 0xff, 0xff, 0x8f, 0x7f, 0x02, 0x20, 0x1e, 0x0b, 0x04, 0x72, 0xef, 0x1f, 0x00,
        ];
        for (codec, bytes) in [
            (Unlimited::Gzip, gzip.finish().unwrap()),
            (Unlimited::Lz4Frame, frame.finish().unwrap()),
            (Unlimited::Brotli, brotli.to_vec()),
        ] {
            assert!(!is_longer(codec, &bytes, 1 << 20));
            assert!(is_longer(codec, &bytes, (1 << 20) - 1));
            // what cannot be decompressed is the library's to report
            assert!(!is_longer(codec, b"no page", 0));
        }
    }

    #[test]
    fn sizes_of_a_header_of_parquet_cpp_are_read() {
        // the first page of a file of one text of 500 MiB
        let bytes = [
            0x15, 0x00, 0x15, 0x94, 0x80, 0x80, 0xf4, 0x03, 0x15, 0xc0, 0xfa, 0x01, 0x2c, 0x15,
            0x02, 0x15, 0x00,
        ];
        let found = Declared::read(&bytes).unwrap();
        assert_eq!(
            found,
            Declared {
                uncompressed: (500 << 20) + 10,
                compressed: 16_032,
                values: 1,
            }
        );
        for end in 0..15 {
            assert_eq!(Declared::read(&bytes[..end]), None, "{end}");
        }
        // negative, out of order, longer than 32 bits
        assert_eq!(
            Declared::read(&[0x15, 0, 0x15, 3, 0x15, 2, 0x2c, 0x15, 2]),
            None
        );
        assert_eq!(
            Declared::read(&[0x25, 0, 0x15, 2, 0x15, 2, 0x2c, 0x15, 2]),
            None
        );
        assert_eq!(
            Declared::read(&[0x15, 0, 0x15, 255, 255, 255, 255, 255, 1]),
            None
        );
    }
}
