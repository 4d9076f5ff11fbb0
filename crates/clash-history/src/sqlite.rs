//! Reads tables of a SQLite database, with its write-ahead log: OpenCode keeps
//! its history in one and leaves most of it in the log.
//!
//! It reads ordinary tables with text and integers in row order. It locks and writes
//! nothing, so a database in use may change during the reading; an inconsistency ends the
//! reading with an error. The format: <https://www.sqlite.org/fileformat2.html>.
//!
//! The reader is hand-written, because the crate `rusqlite` links SQLite itself: 1.9 MB
//! more in a release build (2,199,624 bytes against 315,256 for the same small program),
//! 263,000 lines of C for the static target to compile, and write access to the `-shm`
//! file of a database with a write-ahead log. This module has 370 lines and no `unsafe`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::lines::MAX_LINE_BYTES;

/// A database and the pages of its write-ahead log.
#[derive(Debug)]
pub(crate) struct SqliteFile {
    file: File,
    page_size: usize,
    /// Bytes of a page that hold data.
    usable: usize,
    log: Option<WriteAheadLog>,
    /// The number of pages. Reading more pages than this means a circle.
    pages: u64,
}

#[derive(Debug)]
struct WriteAheadLog {
    file: File,
    /// The offset of the newest version of each page.
    pages: HashMap<u32, u64>,
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SqliteCell {
    Text(String),
    Number(i64),
    Other,
}

impl SqliteCell {
    pub(crate) fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(_) | Self::Other => None,
        }
    }
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// A number of `length` bytes; an error if they reach beyond the page.
fn number(bytes: &[u8], at: usize, length: usize) -> io::Result<u64> {
    let end = at.checked_add(length).ok_or_else(|| wrong("a place beyond the page"))?;
    let bytes = bytes.get(at..end).ok_or_else(|| wrong("a place beyond the page"))?;
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// A number of one to nine bytes, and the place behind it.
fn varint(bytes: &[u8], at: usize) -> io::Result<(u64, usize)> {
    let mut value = 0_u64;
    for index in 0..9 {
        let byte = number(bytes, at + index, 1)?;
        if index == 8 {
            return Ok((value << 8 | byte, at + 9));
        }
        value = value << 7 | byte & 0x7f;
        if byte & 0x80 == 0 {
            return Ok((value, at + index + 1));
        }
    }
    Err(wrong("a number without an end"))
}

fn size(number: u64) -> io::Result<usize> {
    usize::try_from(number).map_err(|_| wrong("a size beyond all bounds"))
}

impl SqliteFile {
    /// Opens a database for reading, with the finished transactions of its log. Another
    /// file is an error.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut head = [0; 100];
        file.read_exact_at(&mut head, 0)?;
        if !head.starts_with(b"SQLite format 3\0") {
            return Err(wrong("no SQLite database"));
        }
        let page_size = page_size(number(&head, 16, 2)?)?;
        let reserved = size(number(&head, 20, 1)?)?;
        let usable = page_size.checked_sub(reserved).filter(|usable| *usable >= 480);
        let usable = usable.ok_or_else(|| wrong("a page without room"))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push("-wal");
        let log = match File::open(beside) {
            Ok(file) => WriteAheadLog::read(file, page_size)?,
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let in_file = file.metadata()?.len() / page_size as u64;
        let in_log = log.as_ref().map_or(0, |log| log.pages.len() as u64);
        Ok(Self { file, page_size, usable, log, pages: in_file + in_log })
    }

    /// The newest version of a page; an error if the file ends before it.
    fn page(&self, page: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.page_size];
        let page = u32::try_from(page).map_err(|_| wrong("a page beyond all bounds"))?;
        let logged = self.log.as_ref().and_then(|log| Some((log, *log.pages.get(&page)?)));
        match (logged, page.checked_sub(1)) {
            (Some((log, at)), _) => log.file.read_exact_at(&mut bytes, at)?,
            (None, Some(before)) => {
                self.file.read_exact_at(&mut bytes, u64::from(before) * self.page_size as u64)?;
            }
            (None, None) => return Err(wrong("a page without a number")),
        }
        Ok(bytes)
    }

    /// Calls `each` with the named columns of every row of a table, until it breaks. `None`
    /// if there is no such table, or it has not all of them.
    pub(crate) fn rows(
        &self,
        table: &str,
        columns: &[&str],
        each: &mut dyn FnMut(Vec<SqliteCell>) -> ControlFlow<()>,
    ) -> io::Result<Option<ControlFlow<()>>> {
        let mut found = None;
        let _ = self.walk(1, &[0, 1, 3, 4], &mut |row| {
            if let [
                SqliteCell::Text(kind),
                SqliteCell::Text(name),
                SqliteCell::Number(root),
                SqliteCell::Text(sql),
            ] = row.as_slice()
                && kind == "table"
                && name == table
            {
                found = u64::try_from(*root).ok().zip(places(sql, columns));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        match found {
            Some((root, places)) => self.walk(root, &places, each).map(Some),
            None => Ok(None),
        }
    }

    /// Visits the rows of a table below a root page, in order. Pages in a circle are an
    /// error.
    fn walk(
        &self,
        root: u64,
        columns: &[usize],
        each: &mut dyn FnMut(Vec<SqliteCell>) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        let (mut open, mut looked_at) = (vec![root], 0);
        while let Some(at) = open.pop() {
            looked_at += 1;
            if looked_at > self.pages {
                return Err(wrong("pages in a circle"));
            }
            let page = self.page(at)?;
            // The first page begins with the file's own header.
            let head = if at == 1 { 100 } else { 0 };
            let cells = size(number(&page, head + 3, 2)?)?;
            match number(&page, head, 1)? {
                5 => {
                    // The last child is in the header; the first is looked at first.
                    open.push(number(&page, head + 8, 4)?);
                    for index in (0..cells).rev() {
                        let cell = size(number(&page, head + 12 + 2 * index, 2)?)?;
                        open.push(number(&page, cell, 4)?);
                    }
                    if open.len() as u64 > self.pages {
                        return Err(wrong("more pages than there are"));
                    }
                }
                13 => {
                    for index in 0..cells {
                        let cell = size(number(&page, head + 8 + 2 * index, 2)?)?;
                        if let Some(record) = self.record(&page, cell)?
                            && each(cells_of(&record, columns)?).is_break()
                        {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                }
                _ => return Err(wrong("no page of a table")),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The bytes of a row, from its page and those it flows over to; `None` if it
    /// is too long to be looked at.
    fn record(&self, page: &[u8], cell: usize) -> io::Result<Option<Vec<u8>>> {
        let (length, at) = varint(page, cell)?;
        let (_row, at) = varint(page, at)?;
        let length = size(length)?;
        if length > MAX_LINE_BYTES {
            return Ok(None);
        }
        let most = self.usable - 35;
        let least = (self.usable - 12) * 32 / 255 - 23;
        let here = if length <= most {
            length
        } else {
            let fits = least + (length - least) % (self.usable - 4);
            if fits <= most { fits } else { least }
        };
        let beyond = || wrong("a row beyond its page");
        let mut record = page.get(at..at + here).ok_or_else(beyond)?.to_vec();
        let mut next = if here < length { number(page, at + here, 4)? } else { 0 };
        while record.len() < length {
            let page = self.page(next)?;
            next = number(&page, 0, 4)?;
            let part = (length - record.len()).min(self.usable - 4);
            record.extend(page.get(4..4 + part).ok_or_else(beyond)?);
        }
        Ok(Some(record))
    }
}

/// The size of a page from its header: a power of two from 512 to 65,536, or an error.
fn page_size(written: u64) -> io::Result<usize> {
    // The largest does not fit into its two bytes.
    match if written == 1 { 65_536 } else { written } {
        size @ 512..=65_536 if size.is_power_of_two() => crate::sqlite::size(size),
        _ => Err(wrong("a page of no size")),
    }
}

impl WriteAheadLog {
    /// The newest version of each page in a finished transaction. Reads frames up to the
    /// first one with another salt; does not check their checksums. `None` for a log of
    /// something else or with another page size.
    fn read(file: File, expected: usize) -> io::Result<Option<Self>> {
        let mut head = [0; 32];
        if file.metadata()?.len() < 32 {
            return Ok(None);
        }
        file.read_exact_at(&mut head, 0)?;
        let (magic, salt) = (number(&head, 0, 4)?, number(&head, 16, 8)?);
        if magic >> 1 != 0x377f_0682 >> 1 || page_size(number(&head, 8, 4)?)? != expected {
            return Ok(None);
        }
        let (mut pages, mut begun) = (HashMap::new(), Vec::new());
        let (mut at, mut frame) = (32, [0; 24]);
        while file.read_exact_at(&mut frame, at).is_ok() && number(&frame, 8, 8)? == salt {
            let page = u32::try_from(number(&frame, 0, 4)?).unwrap_or(0);
            begun.push((page, at + 24));
            if number(&frame, 4, 4)? != 0 {
                pages.extend(begun.drain(..));
            }
            at += 24 + expected as u64;
        }
        Ok(Some(Self { file, pages }))
    }
}

/// The indices of columns in a `CREATE TABLE`; `None` if one is missing.
fn places(sql: &str, columns: &[&str]) -> Option<Vec<usize>> {
    let (_, body) = sql.split_once('(')?;
    let (mut names, mut depth, mut part) = (Vec::new(), 0_u32, String::new());
    for c in body.chars() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => break,
            ')' => depth -= 1,
            ',' if depth == 0 => names.push(std::mem::take(&mut part)),
            _ => part.push(c),
        }
    }
    names.push(part);
    let bare = |part: &String| {
        let word = part.split_whitespace().next().unwrap_or_default();
        word.trim_matches(['`', '"', '[', ']']).to_owned()
    };
    let names: Vec<String> = names.iter().map(bare).collect();
    columns.iter().map(|column| names.iter().position(|name| name == column)).collect()
}

/// The values of these columns in a row. A column that the row lacks is
/// [`SqliteCell::Other`].
fn cells_of(record: &[u8], columns: &[usize]) -> io::Result<Vec<SqliteCell>> {
    let (head, mut at) = varint(record, 0)?;
    let head = size(head)?;
    let (mut kinds, mut data) = (Vec::new(), head);
    while at < head {
        let (kind, next) = varint(record, at)?;
        let length = match kind {
            0 | 8 | 9 => 0,
            1..=4 => size(kind)?,
            5 => 6,
            6 | 7 => 8,
            10 | 11 => return Err(wrong("a value of no type")),
            text => size((text - 12) / 2)?,
        };
        kinds.push((kind, data, length));
        data = data.checked_add(length).ok_or_else(|| wrong("a row beyond all bounds"))?;
        at = next;
    }
    let cell = |column: &usize| {
        // Columns added later are not in older rows.
        let Some((kind, at, length)) = kinds.get(*column).copied() else {
            return Ok(SqliteCell::Other);
        };
        Ok(match kind {
            8 => SqliteCell::Number(0),
            9 => SqliteCell::Number(1),
            1..=6 => {
                let value = number(record, at, length)?;
                let unused = 64 - 8 * u32::try_from(length).unwrap_or(8);
                SqliteCell::Number((value << unused).cast_signed() >> unused)
            }
            kind if kind >= 13 && kind % 2 == 1 => {
                let end = at.checked_add(length).ok_or_else(|| wrong("a text beyond its row"))?;
                let bytes = record.get(at..end).ok_or_else(|| wrong("a text beyond its row"))?;
                SqliteCell::Text(String::from_utf8_lossy(bytes).into_owned())
            }
            _ => SqliteCell::Other,
        })
    };
    columns.iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_are_found_by_name() {
        let sql =
            "CREATE TABLE `part` (\n `id` text PRIMARY KEY,\n x numeric(3, 4), \"data\" text)";
        assert_eq!(places(sql, &["data", "id"]), Some(vec![2, 0]));
        assert_eq!(places(sql, &["no"]), None);
    }

    /// The number of rows of the table `part` in a database with this log.
    fn rows(file: &[u8], log: &[u8]) -> io::Result<usize> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("x.db");
        std::fs::write(&path, file)?;
        std::fs::write(dir.path().join("x.db-wal"), log)?;
        let mut rows = 0;
        let _ = SqliteFile::open(&path)?.rows("part", &["data"], &mut |_| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn any_damage_is_an_error_or_rows(
            damage in proptest::collection::vec((0_usize..8192, any::<u8>()), 1..40),
            cut in 0_usize..8192,
        ) {
            let mut file = include_bytes!("../tests/samples/parts.db").to_vec();
            for (at, byte) in damage {
                // The first bytes say that it is a database at all.
                if let Some(there) = file.get_mut(16 + at) {
                    *there = byte;
                }
            }
            let log = file.get(..cut.min(file.len())).unwrap_or_default().to_vec();
            let _ = rows(&file, &log);
            file.truncate(cut);
            let _ = rows(&file, &[]);
        }
    }

    #[test]
    fn rows_come_from_the_file_and_those_too_long_for_a_page_too() {
        let found = rows(include_bytes!("../tests/samples/parts.db"), &[]);
        assert!(matches!(found, Ok(60)), "{found:?}");
    }
}
