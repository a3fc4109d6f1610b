/*
 * How names are looked up: in /etc/hosts and by DNS, whatever /etc/nsswitch.conf says, as Go's static programs do.
 *
 * The delivered program holds its C library. For any other word in nsswitch.conf that library would load a module of the
 * host's, and with it the host's own C library: where that is another version, the process dies inside getaddrinfo.
 * systemd-resolved's names still come by DNS, from its stub. Users are looked up (for a home directory) in /etc/passwd.
 *
 * It runs before main, while there is one thread. What it is not: a resolver.
 */
#include <nss.h>

__attribute__((constructor)) static void lookup_without_modules(void)
{
    __nss_configure_lookup("hosts", "files dns");
    __nss_configure_lookup("passwd", "files");
    __nss_configure_lookup("group", "files");
}
