//! gzip members (RFC 1952): whole ones in one call, long ones streamed, damaged ones skipped.

use std::io::{self, Read};

use flate2::bufread::GzDecoder;

use super::gzip::{find_sound, is_gzip};
use super::inflate::Inflated;
use super::piece::{CHUNK, FIRST_WINDOW, LAST_WINDOW, Piece, WHOLE, bomb};
use super::{Member, Source, State};
use crate::read::storage::Window;

impl Source {
    /// Between members.
    pub(super) fn gzip(&mut self, mut window: Window, out: &mut Vec<u8>) -> Piece {
        let offset = window.offset();
        let mut wanted = FIRST_WINDOW;
        loop {
            if let Err(e) = window.fill_to(wanted) {
                return Piece::Failed(e);
            }
            let bytes = window.available();
            // Padding with zeros after the last member is common and harmless.
            if bytes.is_empty() || (window.at_end() && bytes.iter().all(|&b| b == 0)) {
                self.consumed = offset + bytes.len() as u64;
                return Piece::End;
            }
            if !is_gzip(bytes) {
                let why = ("not a gzip header".to_string(), false);
                return self.resync(window, offset, offset, why);
            }
            let Some(inflater) = self.inflater.as_mut().filter(|_| self.records) else {
                break;
            };
            match inflater.member(bytes, out, WHOLE) {
                Inflated::Member(used) => {
                    window.skip(used);
                    self.consumed = window.offset();
                    self.state = State::Gzip(window);
                    return Piece::Data {
                        offset,
                        starts_member: true,
                        ends_member: true,
                    };
                }
                // it is incomplete or damaged: a larger window decides
                Inflated::Bad if !window.at_end() && wanted < LAST_WINDOW => wanted *= 4,
                Inflated::Bad | Inflated::TooLarge => break,
            }
        }
        let member = Member {
            decoder: GzDecoder::new(window),
            offset,
            made: 0,
        };
        self.member(Box::new(member), out)
    }

    /// Streams a member that is long or damaged.
    pub(super) fn member(&mut self, mut member: Box<Member>, out: &mut Vec<u8>) -> Piece {
        let before = out.len();
        out.resize(before + CHUNK, 0);
        let read = member.decoder.read(&mut out[before..]);
        let n = *read.as_ref().unwrap_or(&0);
        out.truncate(before + n);
        let (offset, first) = (member.offset, member.made == 0);
        self.consumed = member.decoder.get_ref().offset();
        member.made += n as u64;
        let why = match read {
            Ok(0) => {
                let window = member.decoder.into_inner();
                return self.gzip(window, out);
            }
            Ok(_) => match bomb(member.made, self.consumed - offset) {
                Some(why) => why,
                None => {
                    self.state = State::Member(member);
                    return Piece::Data {
                        offset,
                        starts_member: first,
                        ends_member: false,
                    };
                }
            },
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                "the file ends inside a gzip member".to_string()
            }
            Err(e) => format!("corrupt gzip member: {e}"),
        };
        let window = member.decoder.into_inner();
        self.resync(window, offset, offset + 1, (why, member.made > 0))
    }

    /// Goes to the next member that looks sound, at or after `from`.
    fn resync(
        &mut self,
        mut window: Window,
        damaged: u64,
        from: u64,
        (why, inside): (String, bool),
    ) -> Piece {
        let found = window
            .seek(from)
            .and_then(|()| find_sound(&mut window, self.records));
        if matches!(found, Ok(true)) {
            self.state = State::Gzip(window);
        } else {
            self.consumed = window.offset() + window.available().len() as u64;
            self.state = State::Done;
        }
        Piece::Damage {
            offset: damaged,
            why,
            inside,
        }
    }
}
