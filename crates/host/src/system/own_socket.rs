//! systemd's own socket, as a D-Bus library can read it.
//!
//! On that socket systemd names itself `org.freedesktop.systemd1` as the sender of its answers. The specification allows only
//! unique names there (`:1.2`), and zbus ends a connection that has another one. So a task stands between the two: it passes
//! on what both say, and corrects the sender. File descriptors are not passed on; no call of ours has any.
//!
//! Not here: when this socket is used instead of the bus (see `dbus`).
//!
//! Source: <https://dbus.freedesktop.org/doc/dbus-specification.html>.

use std::io;
use std::path::Path;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// The fixed part of a message: byte order, type, flags, version, length of the body, serial, length of the fields
/// (D-Bus specification, "Message Format").
const FIXED: usize = 16;
/// The longest message of the specification.
const LONGEST: usize = 128 << 20;
/// The field `SENDER` (7), a string, in the two byte orders.
const SENDERS: [&[u8]; 2] =
    [b"\x07\x01s\0\x18\0\0\0org.freedesktop.systemd1\0", b"\x07\x01s\0\0\0\0\x18org.freedesktop.systemd1\0"];
/// Where the name begins in [`SENDERS`].
const NAME: usize = 8;

/// Connects to the socket.
///
/// # Errors
/// It is not there, or this process may not use it.
pub(crate) async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let (from_systemd, mut to_systemd) = UnixStream::connect(socket).await?.into_split();
    let (ours, theirs) = UnixStream::pair()?;
    let (mut from_us, to_us) = theirs.into_split();
    tokio::spawn(async move {
        // Each direction ends when either side has closed its end; so the other one ends with it.
        tokio::select! {
            _ = tokio::io::copy(&mut from_us, &mut to_systemd) => {}
            _ = pass_on(from_systemd, to_us) => {}
        }
    });
    Ok(ours)
}

/// Passes on what systemd says: first lines of the authentication, then messages.
async fn pass_on(from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let mut said = Vec::new();
        match from.fill_buf().await?.first() {
            None => return Ok(()),
            // The byte order that every message begins with, and no line of a server.
            Some(b'l' | b'B') => {
                said.resize(FIXED, 0);
                from.read_exact(&mut said).await?;
                let no_message = || io::Error::other("systemd sends something else than D-Bus messages");
                let (fields, body) = lengths(&said).ok_or_else(no_message)?;
                said.resize(FIXED + fields + body, 0);
                from.read_exact(said.get_mut(FIXED..).unwrap_or_default()).await?;
                correct(said.get_mut(..FIXED + fields).unwrap_or_default());
            }
            Some(_) => {
                from.read_until(b'\n', &mut said).await?;
            }
        }
        to.write_all(&said).await?;
    }
}

/// How many bytes the fields of a message take, filled up to eight, and how many its body.
fn lengths(fixed: &[u8]) -> Option<(usize, usize)> {
    let number = |at: usize| {
        let bytes: [u8; 4] = fixed.get(at..at + 4)?.try_into().ok()?;
        let is_big = fixed.first() == Some(&b'B');
        usize::try_from(if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }).ok()
    };
    let (fields, body) = (number(12)?.checked_next_multiple_of(8)?, number(4)?);
    (fields.checked_add(body)? <= LONGEST).then_some((fields, body))
}

/// Makes systemd's name as a sender a unique one of the same length.
fn correct(fields: &mut [u8]) {
    for sender in SENDERS {
        let found = fields.windows(sender.len()).position(|window| window == sender);
        if let Some(first) = found.and_then(|at| fields.get_mut(at + NAME)) {
            *first = b':';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What systemd 252 answers to `ListUnitsByNames`: fields and body.
    const ANSWER: &[u8] = b"l\x02\x01\x01\x08\0\0\0\x01\0\0\0\x43\0\0\0\x05\x01u\0\x0f\0\0\0\
        \x07\x01s\0\x18\0\0\0org.freedesktop.systemd1\0\0\0\0\0\0\0\0\x08\x01g\0\x0da(ssssssouso)\0";

    #[tokio::test]
    async fn answers_get_a_sender_that_is_a_unique_name_and_all_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("private");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        // The fields are filled up to eight bytes, and the body follows.
        let fields = usize::from(*ANSWER.get(12).unwrap());
        let mut answer = ANSWER.to_vec();
        answer.resize(FIXED + fields.next_multiple_of(8), 0);
        let mut body = answer.clone();
        body.extend(b"org.free");
        let message = body.clone();
        let systemd = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 4];
            stream.read_exact(&mut asked).await.unwrap();
            stream.write_all(b"OK 00\r\nAGREE_UNIX_FD\r\n").await.unwrap();
            // In two parts, in the middle of the name.
            let (first, second) = message.split_at(40);
            stream.write_all(first).await.unwrap();
            stream.flush().await.unwrap();
            tokio::task::yield_now().await;
            stream.write_all(second).await.unwrap();
            asked
        });
        let mut ours = connect(&socket).await.unwrap();
        ours.write_all(b"AUTH").await.unwrap();
        let mut said = Vec::new();
        ours.read_to_end(&mut said).await.unwrap();
        assert_eq!(&systemd.await.unwrap(), b"AUTH");
        let lines = b"OK 00\r\nAGREE_UNIX_FD\r\n";
        let mut want = lines.to_vec();
        want.extend(&body);
        let name = want.windows(4).position(|w| w == b"org.").unwrap();
        want[name] = b':';
        assert_eq!(said, want);
    }

    #[test]
    fn lengths_are_read_in_both_byte_orders_and_no_more_than_the_longest_message_is() {
        assert_eq!(lengths(ANSWER), Some((72, 8)));
        let big = b"B\x02\x01\x01\0\0\0\x08\0\0\0\x01\0\0\0\x43";
        assert_eq!(lengths(big), Some((72, 8)));
        assert_eq!(lengths(b"l\x02\x01\x01\xff\xff\xff\xff\x01\0\0\0\0\0\0\0"), None);
        assert_eq!(lengths(b"l"), None);
    }
}
