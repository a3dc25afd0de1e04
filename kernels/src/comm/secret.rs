//! Mutual authentication by a shared secret, which is never sent: each side sends a nonce, and the other answers
//! with a code over both nonces and its message (HMAC-SHA256: RFC 2104, FIPS 198-1). The protocol is lines of text:
//!
//! ```text
//! listener     millrace-2 NONCE
//! caller       NONCE CODE WORDS
//! listener     known CODE            or: refused
//! ```
//!
//! The caller's code is over `caller`, both nonces and the words, the listener's over `listener` and the same: a
//! code of one side is never valid for the other, and none is valid twice. Later data on the connection is neither
//! encrypted nor authenticated: the secret excludes those who can open a connection, not those who can read and
//! change packets in transit, which MPI and NCCL do not either.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// First word of a listener.
const HELLO: &str = "millrace-2";
/// Longest line.
const MOST_BYTES: usize = 4096;
/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;
/// Time limit for a handshake: for its lines as a whole, however slowly their bytes arrive.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(2);

/// Secret that all processes of a run share and nobody else knows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// Returns the secret that a text of any length defines.
    pub fn of(text: &str) -> Secret {
        Secret(Sha256::digest(text.as_bytes()).into())
    }

    /// Returns a text that nobody can guess: 256 bits of the system's random numbers in hexadecimal digits.
    ///
    /// # Errors
    /// If the system's random source fails.
    pub fn random_text() -> io::Result<String> {
        random(32)
    }

    /// Returns the secret of a part of a run that a text names.
    pub(super) fn derived(&self, text: &str) -> Secret {
        Secret(self.code(&["derived", text]))
    }

    /// HMAC-SHA256 over texts, each with its length before it.
    fn code(&self, texts: &[&str]) -> [u8; 32] {
        let mut message = Vec::new();
        for text in texts {
            message.extend_from_slice(&(text.len() as u64).to_le_bytes());
            message.extend_from_slice(text.as_bytes());
        }
        hmac(&self.0, &message)
    }

    /// Whether a code in hexadecimal digits is that of the texts, in constant time.
    fn is_code(&self, code: &str, texts: &[&str]) -> bool {
        let wanted = hex(&self.code(texts));
        let differs = wanted
            .bytes()
            .zip(code.bytes())
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        code.len() == wanted.len() && differs == 0
    }
}

fn hmac(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new()
        .chain_update(pad(0x36))
        .chain_update(message)
        .finalize();
    let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner);
    outer.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// So many random bytes of the system in hexadecimal digits.
fn random(bytes: usize) -> io::Result<String> {
    let mut random = vec![0; bytes];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(hex(&random))
}

/// A number that is used once.
pub(super) fn nonce() -> io::Result<String> {
    random(16)
}

/// Reads up to the end of a line and none of the bytes behind it.
pub(super) fn read_line(stream: &mut TcpStream, until: Instant) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < MOST_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut byte) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) if byte[0] == b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        ErrorKind::InvalidData,
        "a line without an end",
    ))
}

/// Writes a line, which fits into the other side's buffers.
fn write_line(stream: &mut TcpStream, line: &str, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    stream.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
    stream.write_all(format!("{line}\n").as_bytes())
}

fn without_deadlines(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)
}

/// The listener's side: returns the words of a caller that knows the secret, None for any other caller.
///
/// # Errors
/// Errors of the connection, or if the handshake takes too long.
pub(super) fn admit(stream: &mut TcpStream, secret: &Secret) -> io::Result<Option<String>> {
    let until = Instant::now() + HANDSHAKE;
    let mine = nonce()?;
    write_line(stream, &format!("{HELLO} {mine}"), until)?;
    let line = read_line(stream, until)?;
    let mut words = line.splitn(3, ' ');
    let (theirs, code, words) = (words.next(), words.next(), words.next());
    let (Some(theirs), Some(code), Some(words)) = (theirs, code, words) else {
        return Ok(None);
    };
    if !secret.is_code(code, &["caller", &mine, theirs, words]) {
        // a process with another secret should learn why it is refused
        write_line(stream, "refused", until)?;
        return Ok(None);
    }
    let code = hex(&secret.code(&["listener", &mine, theirs, words]));
    write_line(stream, &format!("known {code}"), until)?;
    without_deadlines(stream)?;
    Ok(Some(words.to_owned()))
}

/// Why a caller is refused.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The connection failed, or nobody answered in time.
    Connection(io::Error),
    /// Another program listens there, or one that does not know the secret either.
    Stranger,
    /// The listener has another secret.
    Secret,
}

/// The caller's side: sends these words to a listener after mutual authentication.
pub(super) fn introduce(
    stream: &mut TcpStream,
    secret: &Secret,
    words: &str,
) -> Result<(), Refusal> {
    let until = Instant::now() + 2 * HANDSHAKE;
    let line = read_line(stream, until).map_err(of_connection)?;
    let Some(theirs) = line.strip_prefix(HELLO).and_then(|l| l.strip_prefix(' ')) else {
        return Err(Refusal::Stranger);
    };
    let mine = nonce().map_err(Refusal::Connection)?;
    let code = hex(&secret.code(&["caller", theirs, &mine, words]));
    let said = write_line(stream, &format!("{mine} {code} {words}"), until);
    said.map_err(of_connection)?;
    let line = read_line(stream, until).map_err(of_connection)?;
    match line.strip_prefix("known ") {
        Some(code) if secret.is_code(code, &["listener", theirs, &mine, words]) => {
            without_deadlines(stream).map_err(Refusal::Connection)
        }
        None if line == "refused" => Err(Refusal::Secret),
        _ => Err(Refusal::Stranger),
    }
}

fn of_connection(error: io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::InvalidData => Refusal::Stranger,
        _ => Refusal::Connection(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// RFC 4231, test case 1 with its key filled with zeros to 32 bytes, which the block is filled with anyway, and
    /// test case 2 likewise.
    #[test]
    fn codes_are_those_of_the_standard() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        assert_eq!(
            hex(&hmac(&key, b"Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        assert_eq!(
            hex(&hmac(&key, b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn texts_that_are_joined_otherwise_have_other_codes_and_secrets_are_not_shown() {
        let secret = Secret::of("a");
        assert_ne!(secret.code(&["ab", "c"]), secret.code(&["a", "bc"]));
        assert_ne!(secret.code(&["x"]), Secret::of("b").code(&["x"]));
        assert_ne!(secret.derived("x"), secret);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let code = hex(&secret.code(&["x"]));
        assert!(secret.is_code(&code, &["x"]));
        assert!(!secret.is_code(&code[1..], &["x"]) && !secret.is_code("", &["x"]));
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }

    /// Handshake of a listener and a caller with these secrets: both results.
    fn meet(there: &Secret, here: &Secret) -> (Option<String>, Result<(), Refusal>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let admitted = scope.spawn(move || admit(&mut listener.accept().unwrap().0, there));
            let said = introduce(&mut TcpStream::connect(at).unwrap(), here, "3 of a kind");
            (admitted.join().unwrap().unwrap(), said)
        })
    }

    #[test]
    fn only_who_knows_the_secret_is_let_in_and_lets_itself_in() {
        let (one, other) = (Secret::of("one"), Secret::of("other"));
        let (words, said) = meet(&one, &one);
        assert_eq!(words.as_deref(), Some("3 of a kind"));
        assert!(said.is_ok());
        let (words, said) = meet(&one, &other);
        assert_eq!(words, None);
        assert!(matches!(said, Err(Refusal::Secret)), "{said:?}");
    }

    #[test]
    fn a_line_has_one_deadline_for_all_its_bytes_and_a_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut slow = TcpStream::connect(at).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        thread::scope(|scope| {
            // without an end, until the other side closes the connection
            scope.spawn(move || {
                while slow.write_all(b"x").is_ok() {
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let until = Instant::now() + Duration::from_millis(200);
            let error = read_line(&mut stream, until).unwrap_err();
            drop(stream);
            let is_late = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock);
            assert!(is_late, "{error}");
        });
        let mut long = TcpStream::connect(at).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        long.write_all(&[b'x'; 2 * MOST_BYTES]).unwrap();
        let error = read_line(&mut stream, Instant::now() + HANDSHAKE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
