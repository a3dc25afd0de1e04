//! Rows of a record batch as JSON objects.
//!
//! Times and decimal numbers are written as the reader of Parquet writes them, so that both forms of a table give the
//! same documents: UTC, with the digits of the column's unit. Bytes are text if they are UTF-8, else base64.
//! A null is `null`; keys of maps are strings.

use arrow_array::cast::AsArray;
use arrow_array::temporal_conversions::{as_date, as_datetime};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};

use crate::read::columns::{Column, special, write_bytes, write_json, write_text};

/// Why a row is not written.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// It is longer than allowed.
    TooLong,
    /// In words.
    Other(String),
}

impl From<String> for Unwritten {
    fn from(why: String) -> Unwritten {
        Unwritten::Other(why)
    }
}

type Written = Result<(), Unwritten>;

/// Where values are written.
struct Sink<'a> {
    out: &'a mut Vec<u8>,
    max: usize,
}

/// Puts a row in the place of `out`, as an object of its columns of at most `max` bytes; `is_text`: of each column,
/// whether its bytes must be UTF-8.
pub(super) fn write_row(
    out: &mut Vec<u8>,
    batch: &RecordBatch,
    row: usize,
    is_text: &[bool],
    max: usize,
) -> Written {
    out.clear();
    let schema = batch.schema_ref();
    let names = schema.fields().iter().map(|field| field.name().as_str());
    Sink { out, max }.object(names.zip(batch.columns()), row, Some(is_text))
}

impl Sink<'_> {
    /// Fails once more is written than may be: values may repeat, so their number is not bounded by the file.
    fn checked(&self, more: usize) -> Written {
        match self.out.len().saturating_add(more) > self.max {
            true => Err(Unwritten::TooLong),
            false => Ok(()),
        }
    }

    fn bare(&mut self, text: &str) -> Written {
        self.checked(text.len())?;
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Columns of a row, or fields of a struct; `is_text`: of the columns of a row.
    fn object<'c>(
        &mut self,
        fields: impl Iterator<Item = (&'c str, &'c ArrayRef)>,
        row: usize,
        is_text: Option<&[bool]>,
    ) -> Written {
        self.bare("{")?;
        for (i, (name, values)) in fields.enumerate() {
            if i > 0 {
                self.bare(",")?;
            }
            write_json(self.out, name)?;
            self.bare(":")?;
            let column = is_text.map(|is_text| Column {
                name,
                is_text: is_text.get(i).is_some_and(|is_text| *is_text),
            });
            self.value(values, row, column)?;
        }
        self.bare("}")
    }

    fn list(&mut self, values: &dyn Array) -> Written {
        self.bare("[")?;
        for i in 0..values.len() {
            if i > 0 {
                self.bare(",")?;
            }
            self.value(values, i, None)?;
        }
        self.bare("]")
    }

    fn map(&mut self, entries: &dyn Array) -> Written {
        let entries = entries.as_struct();
        let (keys, values) = (entries.column(0), entries.column(1));
        self.bare("{")?;
        for i in 0..entries.len() {
            if i > 0 {
                self.bare(",")?;
            }
            let start = self.out.len();
            self.value(keys, i, None)?;
            if self.out.get(start) != Some(&b'"') {
                let key = String::from_utf8_lossy(&self.out[start..]).into_owned();
                self.out.truncate(start);
                write_json(self.out, &key)?;
            }
            self.bare(":")?;
            self.value(values, i, None)?;
        }
        self.bare("}")
    }

    /// A text; `column`: the name of the column, if it is one's own value.
    fn text(&mut self, text: &str, column: Option<Column<'_>>) -> Written {
        self.checked(text.len())?;
        let name = column.map_or("", |column| column.name);
        Ok(write_text(self.out, name, text)?)
    }

    fn bytes(&mut self, bytes: &[u8], column: Option<Column<'_>>) -> Written {
        self.checked(bytes.len())?;
        Ok(write_bytes(self.out, column, bytes)?)
    }

    fn float(&mut self, number: f64) -> Written {
        match special(number) {
            Some(name) => self.bare(name),
            None => Ok(write_json(self.out, &number)?),
        }
    }

    fn number<T: ArrowPrimitiveType<Native: serde::Serialize>>(
        &mut self,
        values: &dyn Array,
        row: usize,
    ) -> Written {
        Ok(write_json(
            self.out,
            &values.as_primitive::<T>().value(row),
        )?)
    }

    fn date<T: ArrowPrimitiveType<Native: Into<i64>>>(
        &mut self,
        values: &dyn Array,
        row: usize,
    ) -> Written {
        let value = values.as_primitive::<T>().value(row).into();
        match as_date::<T>(value) {
            Some(date) => self.text(&date.format("%Y-%m-%d").to_string(), None),
            None => Ok(write_json(self.out, &value)?),
        }
    }

    fn timestamp<T: ArrowPrimitiveType<Native: Into<i64>>>(
        &mut self,
        values: &dyn Array,
        row: usize,
        form: &str,
    ) -> Written {
        let value = values.as_primitive::<T>().value(row).into();
        match as_datetime::<T>(value) {
            Some(time) => self.text(&time.format(form).to_string(), None),
            None => Ok(write_json(self.out, &value)?),
        }
    }

    /// A time of day in parts of a second, of which `digits` digits are written.
    fn time<T: ArrowPrimitiveType<Native: Into<i64>>>(
        &mut self,
        values: &dyn Array,
        row: usize,
        digits: usize,
    ) -> Written {
        let value: i64 = values.as_primitive::<T>().value(row).into();
        let parts = 10i64.pow(u32::try_from(digits).unwrap_or(0));
        let (seconds, part) = (value.div_euclid(parts), value.rem_euclid(parts));
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let (digits, part) = match digits {
            0 => (3, 0),
            digits => (digits, part),
        };
        let text = format!(
            "{hours:02}:{minutes:02}:{:02}.{part:0digits$}",
            seconds % 60
        );
        self.text(&text, None)
    }

    fn list_view<O: OffsetSizeTrait>(&mut self, values: &dyn Array, row: usize) -> Written {
        self.list(&values.as_list_view::<O>().value(row))
    }

    /// A value of an array; `column`: the name of the column, if it is one's own value.
    fn value(&mut self, values: &dyn Array, row: usize, column: Option<Column<'_>>) -> Written {
        self.checked(1)?;
        if values.is_null(row) {
            return self.bare("null");
        }
        match values.data_type() {
            DataType::Null => self.bare("null"),
            DataType::Boolean => {
                let value = values.as_boolean().value(row);
                self.bare(if value { "true" } else { "false" })
            }
            DataType::Int8 => self.number::<Int8Type>(values, row),
            DataType::Int16 => self.number::<Int16Type>(values, row),
            DataType::Int32 => self.number::<Int32Type>(values, row),
            DataType::Int64 => self.number::<Int64Type>(values, row),
            DataType::UInt8 => self.number::<UInt8Type>(values, row),
            DataType::UInt16 => self.number::<UInt16Type>(values, row),
            DataType::UInt32 => self.number::<UInt32Type>(values, row),
            DataType::UInt64 => self.number::<UInt64Type>(values, row),
            DataType::Float16 => {
                self.float(values.as_primitive::<Float16Type>().value(row).to_f64())
            }
            DataType::Float32 => {
                self.float(f64::from(values.as_primitive::<Float32Type>().value(row)))
            }
            DataType::Float64 => self.float(values.as_primitive::<Float64Type>().value(row)),
            DataType::Utf8 => self.text(values.as_string::<i32>().value(row), column),
            DataType::LargeUtf8 => self.text(values.as_string::<i64>().value(row), column),
            DataType::Utf8View => self.text(values.as_string_view().value(row), column),
            DataType::Binary => self.bytes(values.as_binary::<i32>().value(row), column),
            DataType::LargeBinary => self.bytes(values.as_binary::<i64>().value(row), column),
            DataType::BinaryView => self.bytes(values.as_binary_view().value(row), column),
            DataType::FixedSizeBinary(_) => {
                self.bytes(values.as_fixed_size_binary().value(row), column)
            }
            DataType::Date32 => self.date::<Date32Type>(values, row),
            DataType::Date64 => self.date::<Date64Type>(values, row),
            DataType::Timestamp(unit, _) => match unit {
                TimeUnit::Second => self.timestamp::<TimestampSecondType>(values, row, MILLIS),
                TimeUnit::Millisecond => {
                    self.timestamp::<TimestampMillisecondType>(values, row, MILLIS)
                }
                TimeUnit::Microsecond => {
                    self.timestamp::<TimestampMicrosecondType>(values, row, MICROS)
                }
                TimeUnit::Nanosecond => {
                    self.timestamp::<TimestampNanosecondType>(values, row, NANOS)
                }
            },
            DataType::Time32(unit) | DataType::Time64(unit) => match unit {
                TimeUnit::Second => self.time::<Time32SecondType>(values, row, 0),
                TimeUnit::Millisecond => self.time::<Time32MillisecondType>(values, row, 3),
                TimeUnit::Microsecond => self.time::<Time64MicrosecondType>(values, row, 6),
                TimeUnit::Nanosecond => self.time::<Time64NanosecondType>(values, row, 9),
            },
            DataType::Duration(unit) => match unit {
                TimeUnit::Second => self.number::<DurationSecondType>(values, row),
                TimeUnit::Millisecond => self.number::<DurationMillisecondType>(values, row),
                TimeUnit::Microsecond => self.number::<DurationMicrosecondType>(values, row),
                TimeUnit::Nanosecond => self.number::<DurationNanosecondType>(values, row),
            },
            DataType::Interval(unit) => {
                let text = match unit {
                    IntervalUnit::YearMonth => {
                        let months = values.as_primitive::<IntervalYearMonthType>().value(row);
                        format!("{{\"months\":{months}}}")
                    }
                    IntervalUnit::DayTime => {
                        let span = values.as_primitive::<IntervalDayTimeType>().value(row);
                        let (days, millis) = (span.days, span.milliseconds);
                        format!("{{\"days\":{days},\"milliseconds\":{millis}}}")
                    }
                    IntervalUnit::MonthDayNano => {
                        let span = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
                        let (months, days, nanos) = (span.months, span.days, span.nanoseconds);
                        format!("{{\"months\":{months},\"days\":{days},\"nanoseconds\":{nanos}}}")
                    }
                };
                self.bare(&text)
            }
            DataType::Decimal32(..) => {
                let text = values.as_primitive::<Decimal32Type>().value_as_string(row);
                self.text(&text, None)
            }
            DataType::Decimal64(..) => {
                let text = values.as_primitive::<Decimal64Type>().value_as_string(row);
                self.text(&text, None)
            }
            DataType::Decimal128(..) => {
                let text = values.as_primitive::<Decimal128Type>().value_as_string(row);
                self.text(&text, None)
            }
            DataType::Decimal256(..) => {
                let text = values.as_primitive::<Decimal256Type>().value_as_string(row);
                self.text(&text, None)
            }
            DataType::List(_) => self.list(&values.as_list::<i32>().value(row)),
            DataType::LargeList(_) => self.list(&values.as_list::<i64>().value(row)),
            DataType::FixedSizeList(..) => self.list(&values.as_fixed_size_list().value(row)),
            DataType::ListView(_) => self.list_view::<i32>(values, row),
            DataType::LargeListView(_) => self.list_view::<i64>(values, row),
            DataType::Map(..) => self.map(&values.as_map().value(row)),
            DataType::Struct(fields) => {
                let names = fields.iter().map(|field| field.name().as_str());
                self.object(names.zip(values.as_struct().columns()), row, None)
            }
            DataType::Dictionary(..) => {
                let dictionary = values.as_any_dictionary();
                let key = key_of(dictionary.keys(), row)
                    .filter(|key| *key < dictionary.values().len())
                    .ok_or_else(|| "a key outside its dictionary".to_string())?;
                self.value(dictionary.values(), key, column)
            }
            DataType::RunEndEncoded(ends, _) => {
                let (inner, at) = match ends.data_type() {
                    DataType::Int16 => run_of::<Int16Type>(values, row),
                    DataType::Int32 => run_of::<Int32Type>(values, row),
                    _ => run_of::<Int64Type>(values, row),
                };
                self.value(inner, at, column)
            }
            DataType::Union(..) => {
                let union = values.as_union();
                let child = union.child(union.type_id(row));
                self.value(child, union.value_offset(row), column)
            }
        }
    }
}

const MILLIS: &str = "%Y-%m-%d %H:%M:%S%.3f +00:00";
const MICROS: &str = "%Y-%m-%d %H:%M:%S%.6f +00:00";
const NANOS: &str = "%Y-%m-%d %H:%M:%S%.9f +00:00";

/// The values of the runs, and the number of the run that has a row.
fn run_of<T: arrow_array::types::RunEndIndexType>(
    values: &dyn Array,
    row: usize,
) -> (&dyn Array, usize) {
    let runs = values.as_run::<T>();
    (runs.values().as_ref(), runs.get_physical_index(row))
}

/// A row's key in its dictionary.
fn key_of(keys: &dyn Array, row: usize) -> Option<usize> {
    fn of<T: ArrowPrimitiveType<Native: TryInto<usize>>>(
        keys: &dyn Array,
        row: usize,
    ) -> Option<usize> {
        keys.as_primitive::<T>().value(row).try_into().ok()
    }
    match keys.data_type() {
        DataType::Int8 => of::<Int8Type>(keys, row),
        DataType::Int16 => of::<Int16Type>(keys, row),
        DataType::Int32 => of::<Int32Type>(keys, row),
        DataType::Int64 => of::<Int64Type>(keys, row),
        DataType::UInt8 => of::<UInt8Type>(keys, row),
        DataType::UInt16 => of::<UInt16Type>(keys, row),
        DataType::UInt32 => of::<UInt32Type>(keys, row),
        DataType::UInt64 => of::<UInt64Type>(keys, row),
        _ => None,
    }
}
