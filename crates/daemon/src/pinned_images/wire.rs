//! The wire format of Protocol Buffers (<https://protobuf.dev/programming-guides/encoding/>), as far as a handful of
//! messages needs it: texts, nested messages, and numbers. A reader skips the fields that it does not know.
//!
//! Not here: the messages (see `runtime`), or how they travel (see `grpc`). A generator and its library would
//! be larger than all that is said to a container runtime here.

/// The bits of a number that one byte of it holds.
const PART: u32 = 7;
/// A byte of a number that is not its last.
const MORE: u8 = 0x80;

/// A message that is being written.
#[derive(Debug, Default, Clone)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// A text. An empty one is the default, and is not written.
    pub(super) fn text(mut self, field: u32, value: &str) -> Self {
        if !value.is_empty() {
            self.bytes(field, value.as_bytes());
        }
        self
    }

    /// A message within this one.
    pub(super) fn message(mut self, field: u32, inner: &Self) -> Self {
        self.bytes(field, &inner.0);
        self
    }

    /// One entry of a map of texts. An empty value is written: for a label it means that there is none.
    pub(super) fn entry(self, field: u32, key: &str, value: &str) -> Self {
        let mut entry = Self::default().text(1, key);
        entry.bytes(2, value.as_bytes());
        self.message(field, &entry)
    }

    /// The bytes.
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.number(u64::from(field) << 3 | 2);
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn number(&mut self, mut value: u64) {
        while value >= u64::from(MORE) {
            // The low seven bits.
            self.0.push(value.to_le_bytes()[0] | MORE);
            value >>= PART;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

/// The value of a field that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number or a truth value.
    Number(u64),
    /// A text or a message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The text; empty if it is none.
    pub(super) fn text(self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Number(_) => String::new(),
        }
    }

    /// The fields of the message.
    pub(super) fn fields(self) -> Fields<'a> {
        match self {
            Self::Bytes(bytes) => Fields(bytes),
            Self::Number(_) => Fields(&[]),
        }
    }
}

/// The bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not a valid Protocol Buffers message")]
pub(super) struct Malformed;

/// The fields of a message, in their order. After an error it ends.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(PART as usize) {
            let byte = *self.0.first().ok_or(Malformed)?;
            self.0 = self.0.get(1..).unwrap_or_default();
            value |= u64::from(byte & !MORE) << shift;
            if byte & MORE == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next field of a kind that is read here.
    fn field(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        while !self.0.is_empty() {
            let key = self.number()?;
            let field = u32::try_from(key >> 3).map_err(|_| Malformed)?;
            match key & 7 {
                0 => return Ok(Some((field, Value::Number(self.number()?)))),
                1 => drop(self.take(8)?),
                2 => {
                    let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
                    return Ok(Some((field, Value::Bytes(self.take(length)?))));
                }
                5 => drop(self.take(4)?),
                _ => return Err(Malformed),
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.field();
        if next.is_err() {
            self.0 = &[];
        }
        next.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_bytes_of_the_specification() {
        // The examples of the specification: field 1 with 150 is 08 96 01, field 2 with "testing" 12 07 74 …
        assert_eq!(Fields::of(&[0x08, 0x96, 0x01]).next(), Some(Ok((1, Value::Number(150)))));
        let testing = Message::default().text(2, "testing").finish();
        assert_eq!(testing, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        let inner = Message::default().message(3, &Message(vec![0x08, 0x96, 0x01])).finish();
        assert_eq!(inner, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::default().text(1, "").finish(), [0_u8; 0]);
        assert_eq!(Message::default().entry(2, "k", "").finish(), [0x12, 5, 0x0a, 1, b'k', 0x12, 0]);
    }

    #[test]
    fn what_is_written_is_read_and_unknown_fields_are_skipped() {
        let long = "x".repeat(300);
        let mut bytes = Message::default().text(1, &long).entry(2, "a", "b").finish();
        // A double, a float, and a field with a number of five digits.
        bytes.extend([0x19, 0, 0, 0, 0, 0, 0, 0, 0, 0x25, 0, 0, 0, 0]);
        let mut far = Message::default().text(70_000, "far").finish();
        bytes.append(&mut far);
        let read: Vec<_> = Fields::of(&bytes).map(Result::unwrap).collect();
        assert_eq!(read.iter().map(|(field, _)| *field).collect::<Vec<_>>(), [1, 2, 70_000]);
        assert_eq!(read[0].1.text(), long);
        let entry: Vec<String> = read[1].1.fields().map(|f| f.unwrap().1.text()).collect();
        assert_eq!(entry, ["a", "b"]);
    }

    #[test]
    fn bytes_that_are_no_message_end_with_an_error() {
        for bytes in [
            &[0x08][..],
            &[0x12, 9, 1],
            &[0x0b],
            &[0x80; 11],
            &[0x19, 1],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ] {
            let read: Vec<_> = Fields::of(bytes).collect();
            assert_eq!(read, [Err(Malformed)], "{bytes:?}");
        }
    }
}
