//! Boot tokens: what a machine shows the config server to get its pool's config. Pure.
//!
//! A token is `ID.SECRET`: twelve hex digits that name it, in logs too, and 64 that only the machine keeps. The cluster
//! has one Secret for each token, with the hash of the token's secret and what the token is good for. So tokens can be
//! listed, revoked and used up one by one, and thousands of machines do not write to one object.
//!
//! What it is not: the source of random bytes and of the time, or the writing of Secrets (`server` uses tokens up;
//! `operator` and the command line make and revoke them).
//!
//! Source: <https://www.rfc-editor.org/rfc/rfc6750> (how a request shows such a token).

use crate::formats::network::network;
use crate::formats::text::hex;
use crate::k8s::{ByteString, ObjectMeta, Secret};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use subtle::ConstantTimeEq as _;

/// The namespace of the tokens' Secrets. It is separate, so that whoever can read tokens can read no other Secret.
pub const NAMESPACE: &str = "machine-config-boot-tokens";
/// The namespace of earlier versions, which also holds the CA's key. Tokens are moved from there
/// (`operator::boot_tokens`).
pub const OLD_NAMESPACE: &str = crate::names::NAMESPACE;
/// On a token's Secret in the old namespace: when it was moved.
pub const MOVED: &str = crate::names::own::BOOT_TOKEN_MOVED;
/// On every token's Secret; the value is the pool's name.
pub const LABEL: &str = crate::names::label::BOOT_TOKEN;
/// The type of every token's Secret.
pub const TYPE: &str = crate::names::label::BOOT_TOKEN;
/// The prefix of the name of every token's Secret; the ID follows.
pub const NAME_PREFIX: &str = "boot-token-";
/// How many random bytes a token is made of: 6 for the ID, 32 for the secret.
pub const ENTROPY: usize = 38;
/// How many of these bytes form the ID.
const ID_BYTES: usize = 6;
/// How long a single-use token still works for the machine that used it, unless the token says otherwise. Ignition asks
/// again when a transfer breaks, and starts over when a disk is slow; both take minutes.
pub const GRACE: SignedDuration = SignedDuration::from_mins(15);

/// Keys of a token's Secret.
mod key {
    pub(super) const HASH: &str = "sha256";
    pub(super) const POOL: &str = "pool";
    pub(super) const NODE: &str = "node";
    pub(super) const ADDRESSES: &str = "addresses";
    pub(super) const EXPIRES: &str = "expires";
    pub(super) const USES: &str = "uses";
    pub(super) const GRACE: &str = "grace-seconds";
    pub(super) const USED_AT: &str = "used-at";
    pub(super) const USED_BY: &str = "used-by";
}
/// The one value of `uses`.
const SINGLE: &str = "single";

/// A token as the machine has it. It is secret: its debug form shows only the ID.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    secret: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

impl Token {
    /// A token from these random bytes.
    pub fn new(entropy: &[u8; ENTROPY]) -> Self {
        let (id, secret) = entropy.split_at(ID_BYTES);
        Self { id: hex(id), secret: hex(secret) }
    }

    /// Parses `ID.SECRET`; `None` if the text does not have that form.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.split_once('.')?;
        let is_hex = |s: &str, bytes: usize| {
            s.len() == bytes * 2 && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        (is_hex(id, ID_BYTES) && is_hex(secret, ENTROPY - ID_BYTES))
            .then(|| Self { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// The part that names it; not secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole token, to be given to the machine.
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret.as_bytes()).into()
    }
}

/// The first use of a single-use token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUse {
    /// When.
    pub at: Timestamp,
    /// The address that it came from.
    pub by: IpAddr,
}

/// A stored boot token: what it grants, to whom, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its ID.
    pub id: String,
    /// The SHA-256 of its secret.
    pub hash: [u8; 32],
    /// The only pool whose config it grants.
    pub pool: String,
    /// The machine that it was made for; shown in logs and lists.
    pub node: Option<String>,
    /// The addresses from which the machine must ask; empty for any.
    pub addresses: Vec<IpNet>,
    /// When it expires; `None` for never.
    pub expires: Option<Timestamp>,
    /// Whether it is for a single machine's boot.
    pub single_use: bool,
    /// How long after its use the same machine may ask again.
    pub grace: SignedDuration,
    /// Its use, if it is a single-use token that was used.
    pub used: Option<TokenUse>,
}

/// The verdict on a token that was presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The config may be sent.
    Accept,
    /// The config may be sent once this use is stored.
    Claim(TokenUse),
    /// The config may not be sent.
    Refuse(TokenRefusal),
}

/// Why a token grants no config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// No such token, or another secret. The answer does not say which.
    #[error("the boot token is unknown; it may have been revoked")]
    Unknown,
    /// Its pool is another.
    #[error("the boot token is for another pool")]
    Pool,
    /// The request came from another address.
    #[error("the boot token is not for machines at this address")]
    Address,
    /// Its time is over.
    #[error("the boot token has expired")]
    Expired,
    /// A machine has already used it.
    #[error("the boot token was valid for one use and has been used already")]
    Used,
}

/// What has become of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// Nobody has used it.
    Good,
    /// It has been used, and can be used again: for any number of machines, or for now by the same one.
    InUse,
    /// It was for one use, and the time in which the same machine may ask again is over.
    Used,
    /// Its time is over.
    Expired,
}

impl TokenState {
    /// In words, as `mco token list` and the dashboard show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::InUse => "in use",
            Self::Used => "used",
            Self::Expired => "expired",
        }
    }
}

impl Record {
    /// A record for a new token.
    pub fn new(token: &Token, pool: &str) -> Self {
        Self {
            id: token.id.clone(),
            hash: token.hash(),
            pool: pool.to_owned(),
            node: None,
            addresses: vec![],
            expires: None,
            single_use: false,
            grace: GRACE,
            used: None,
        }
    }

    /// Judges a token that was presented for a pool's config.
    pub fn check(&self, token: &Token, pool: &str, from: IpAddr, now: Timestamp) -> Verdict {
        // The secret is checked first: whoever does not have it learns nothing else about the record.
        if !self.has_token(token) {
            return Verdict::Refuse(TokenRefusal::Unknown);
        }
        if pool != self.pool {
            return Verdict::Refuse(TokenRefusal::Pool);
        }
        if !self.addresses.is_empty() && !self.addresses.iter().any(|net| net.contains(&from)) {
            return Verdict::Refuse(TokenRefusal::Address);
        }
        if self.expires.is_some_and(|end| end <= now) {
            return Verdict::Refuse(TokenRefusal::Expired);
        }
        match &self.used {
            _ if !self.single_use => Verdict::Accept,
            None => Verdict::Claim(TokenUse { at: now, by: from }),
            Some(used) if used.by == from && now.duration_since(used.at) <= self.grace => Verdict::Accept,
            Some(_) => Verdict::Refuse(TokenRefusal::Used),
        }
    }

    /// Whether this is the token's record. Takes the same time for every secret.
    pub fn has_token(&self, token: &Token) -> bool {
        self.id == token.id && bool::from(self.hash.ct_eq(&token.hash()))
    }

    /// Whether nobody can use it any more.
    pub fn is_spent(&self, now: Timestamp) -> bool {
        matches!(self.state(now), TokenState::Used | TokenState::Expired)
    }

    /// What has become of it.
    pub fn state(&self, now: Timestamp) -> TokenState {
        let over = |used: &TokenUse| self.single_use && now.duration_since(used.at) > self.grace;
        match &self.used {
            _ if self.expires.is_some_and(|end| end <= now) => TokenState::Expired,
            None => TokenState::Good,
            Some(used) if over(used) => TokenState::Used,
            Some(_) => TokenState::InUse,
        }
    }

    /// The name of its Secret.
    pub fn secret_name(&self) -> String {
        format!("{NAME_PREFIX}{}", self.id)
    }

    /// Its Secret.
    pub fn to_secret(&self) -> Secret {
        let Self { id: _, hash, pool, node, addresses, expires, single_use, grace, used } = self;
        let mut data = BTreeMap::from([(key::HASH, hex(hash)), (key::POOL, pool.clone())]);
        let mut put = |key, value: Option<String>| drop(value.map(|v| data.insert(key, v)));
        put(key::NODE, node.clone());
        let listed: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        put(key::ADDRESSES, (!listed.is_empty()).then(|| listed.join(",")));
        put(key::EXPIRES, expires.map(|t| t.to_string()));
        put(key::USES, single_use.then(|| SINGLE.to_owned()));
        put(key::GRACE, single_use.then(|| grace.as_secs().to_string()));
        data.extend(used.iter().flat_map(TokenUse::fields));
        Secret {
            metadata: ObjectMeta {
                name: Some(self.secret_name()),
                namespace: Some(NAMESPACE.to_owned()),
                labels: Some([(LABEL.to_owned(), pool.clone())].into()),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.to_owned()),
            data: Some(data.into_iter().map(|(k, v)| (k.to_owned(), ByteString(v.into_bytes()))).collect()),
            ..Secret::default()
        }
    }

    /// Reads a Secret.
    ///
    /// # Errors
    /// What is wrong with it, by name and key; never a value.
    pub fn from_secret(secret: &Secret) -> Result<Self, String> {
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let namespace = secret.metadata.namespace.as_deref().unwrap_or(NAMESPACE);
        let bad = |key: &str, why: &str| format!("Secret {namespace}/{name}: {key}: {why}");
        let id =
            name.strip_prefix(NAME_PREFIX).ok_or_else(|| bad("name", "does not begin with boot-token-"))?;
        let text = |key: &str| {
            let value = secret.data.as_ref().and_then(|d| d.get(key));
            let read = value.map(|v| std::str::from_utf8(&v.0).map(str::trim));
            read.transpose().map(|v| v.filter(|v| !v.is_empty())).map_err(|_| bad(key, "is not text"))
        };
        let time = |key: &str| {
            let read = text(key)?.map(str::parse::<Timestamp>).transpose();
            read.map_err(|_| bad(key, "is not a time like 2030-01-31T12:00:00Z"))
        };
        let hash = text(key::HASH)?.and_then(unhex).ok_or_else(|| bad(key::HASH, "is not 64 hex digits"))?;
        let nets = text(key::ADDRESSES)?.unwrap_or_default();
        let nets =
            nets.split(',').map(str::trim).filter(|n| !n.is_empty()).map(network).collect::<Option<_>>();
        let grace = text(key::GRACE)?.map(str::parse::<u32>).transpose();
        let grace = grace.map_err(|_| bad(key::GRACE, "is not a number of seconds"))?;
        let used = match (time(key::USED_AT)?, text(key::USED_BY)?) {
            (None, _) => None,
            (Some(at), by) => {
                let by =
                    by.and_then(|b| b.parse().ok()).ok_or_else(|| bad(key::USED_BY, "is not an address"))?;
                Some(TokenUse { at, by })
            }
        };
        Ok(Self {
            id: id.to_owned(),
            hash,
            pool: text(key::POOL)?.ok_or_else(|| bad(key::POOL, "names no pool"))?.to_owned(),
            node: text(key::NODE)?.map(str::to_owned),
            addresses: nets
                .ok_or_else(|| bad(key::ADDRESSES, "must be addresses or networks, with commas"))?,
            expires: time(key::EXPIRES)?,
            single_use: match text(key::USES)? {
                None => false,
                Some(SINGLE) => true,
                Some(_) => return Err(bad(key::USES, "is neither absent nor `single`")),
            },
            grace: grace.map_or(GRACE, |s| SignedDuration::from_secs(i64::from(s))),
            used,
        })
    }
}

impl TokenUse {
    /// The fields of a token's Secret that record its use.
    pub fn fields(&self) -> [(&'static str, String); 2] {
        [(key::USED_AT, self.at.to_string()), (key::USED_BY, self.by.to_string())]
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0_u8; 32];
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16)?.try_into().ok()).collect::<Option<_>>()?;
    if digits.len() != out.len() * 2 {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |all, digit| all << 4 | digit);
    }
    Some(out)
}

#[cfg(test)]
mod tests;
