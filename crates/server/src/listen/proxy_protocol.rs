//! The client's address behind a load balancer: PROXY protocol, version 2, accepted only from the balancers that the
//! administrator named.
//!
//! Format: <https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>, section 2.2.
//!
//! Guarantees: a connection from a balancer must begin with the header, before TLS. From other addresses no header is read,
//! so no client can claim another address. A balancer's own connections (`LOCAL`, its health checks) keep its address.
//!
//! What it is not: the parser, which is a library; and version 1, which is text that a client could send itself.

use ipnet::IpNet;
use proxy_header::{ParseConfig, ProxyHeader};
use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The length of the fixed part before the addresses: signature, version, family, length.
const FIXED: usize = 16;
/// The longest header that is read. Balancers add a few hundred bytes of their own.
const LONGEST: usize = 4096;

/// Whether this address belongs to a balancer that sends the header.
pub(crate) fn is_balancer(balancers: &[IpNet], address: IpAddr) -> bool {
    balancers.iter().any(|net| net.contains(&address))
}

/// Reads the header and returns the client's address.
pub(crate) async fn client<S: AsyncRead + Unpin>(
    stream: &mut S,
    balancer: SocketAddr,
) -> io::Result<SocketAddr> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut head = vec![0; FIXED];
    stream.read_exact(&mut head).await?;
    let length =
        head.get(FIXED - 2..).and_then(|l| <[u8; 2]>::try_from(l).ok()).map_or(0, u16::from_be_bytes);
    let whole = FIXED + usize::from(length);
    // The signature first: without it, the length field means nothing.
    let config = ParseConfig { include_tlvs: false, allow_v1: false, allow_v2: true };
    match ProxyHeader::parse(&head, config) {
        Ok(_) | Err(proxy_header::Error::BufferTooShort) if whole <= LONGEST => {}
        Ok(_) | Err(proxy_header::Error::BufferTooShort) => {
            return Err(wrong("the PROXY header is too long"));
        }
        Err(_) => return Err(wrong("no PROXY header of version 2")),
    }
    head.resize(whole, 0);
    stream.read_exact(head.get_mut(FIXED..).unwrap_or_default()).await?;
    let (header, _) = ProxyHeader::parse(&head, config).map_err(|_| wrong("the PROXY header is broken"))?;
    let source = header.proxied_address().map_or(balancer, |a| a.source);
    Ok(SocketAddr::new(source.ip().to_canonical(), source.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    fn header(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[0x20 | command, family], &length, payload].concat()
    }

    async fn read(bytes: &[u8]) -> Result<(String, Vec<u8>), String> {
        let mut stream = bytes;
        let from =
            client(&mut stream, SocketAddr::from(([10, 0, 0, 9], 1))).await.map_err(|e| e.to_string())?;
        Ok((from.ip().to_string(), stream.to_vec()))
    }

    #[tokio::test]
    async fn the_header_names_the_client_and_nothing_of_what_follows_is_read() {
        let four = [10, 0, 0, 17, 10, 0, 0, 9, 0x1F, 0x90, 0x58, 0x5F];
        let six = [&[0xFD; 16][..], &[0; 16], &[1, 2, 3, 4]].concat();
        let mapped = [&[0; 10][..], &[0xFF, 0xFF, 10, 0, 0, 17], &[0; 16], &[1, 2, 3, 4]].concat();
        let rows: [(Vec<u8>, &str); 6] = [
            (header(1, 0x11, &four), "10.0.0.17"),
            (header(1, 0x11, &[&four[..], &[3, 0, 4, 1, 2, 3, 4]].concat()), "10.0.0.17"),
            (header(1, 0x21, &six), "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd"),
            (header(1, 0x21, &mapped), "10.0.0.17"),
            // A connection of the load balancer itself (LOCAL).
            (header(0, 0, &[]), "10.0.0.9"),
            (header(1, 0, &[]), "10.0.0.9"),
        ];
        for (bytes, from) in rows {
            let got = read(&[&bytes[..], b"hello"].concat()).await.unwrap();
            assert_eq!(got, (from.to_owned(), b"hello".to_vec()));
            for cut in 0..bytes.len() {
                read(&bytes[..cut]).await.unwrap_err();
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        let long = header(1, 0x11, &[0; 5000]);
        for bytes in [
            &b"PROXY TCP4 10.0.0.17 10.0.0.9 1 2\r\n"[..],
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaaaaaaaa",
            &header(1, 0x11, &[0; 4]),
            &header(2, 0x11, &[0; 12]),
            &long,
        ] {
            read(bytes).await.unwrap_err();
        }
    }

    #[test]
    fn only_named_networks_are_balancers() {
        let nets = ["10.1.0.0/24".parse().unwrap(), "fd00::/8".parse().unwrap()];
        for (address, is) in [("10.1.0.7", true), ("10.2.0.7", false), ("fd00::1", true), ("::1", false)] {
            assert_eq!(is_balancer(&nets, address.parse().unwrap()), is, "{address}");
        }
        assert!(!is_balancer(&[], "10.1.0.7".parse().unwrap()));
    }
}
