"""The shapes of text in the contract, and each shape in words.

Patterns keep to what Rust's regular expressions (pydantic), Go's (the API server) and Python's `fullmatch` read alike:
`^…$` with `$` never before a trailing newline, explicit ASCII classes, no look-around, no class such as `\\d` or `\\w`
that differs on non-ASCII text.
"""

from __future__ import annotations

from typing import Final

DNS_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_1035: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
HOST: Final = "^[A-Za-z0-9:]([-A-Za-z0-9.:]*[A-Za-z0-9:])?$"
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4_CIDR: Final = f"{_OCTET}([.]{_OCTET}){{3}}/(3[0-2]|[12]?[0-9])"
_IPV6_CIDR: Final = "[0-9a-fA-F:]+:[0-9a-fA-F:]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9])"
CIDR: Final = f"^({_IPV4_CIDR}|{_IPV6_CIDR})$"
HTTP_URL: Final = r"^https?://(\[[0-9a-fA-F:]+\]|[-A-Za-z0-9._~%]+)(:[0-9]{1,5})?(/[-A-Za-z0-9._~:/@%+]*)?$"
STORE_URL: Final = "^(s3|gs|az|https?|file)://[-A-Za-z0-9._~:/@%+]+$"
OBJECT_PREFIX: Final = "^[-A-Za-z0-9_][-A-Za-z0-9._]*(/[-A-Za-z0-9_][-A-Za-z0-9._]*)*$"
IMAGE: Final = "^[A-Za-z0-9][-A-Za-z0-9._:/@]*$"
ENV_NAME: Final = "^[A-Za-z_][A-Za-z0-9_]*$"
DATA_KEY: Final = "^[-._a-zA-Z0-9]+$"
QUANTITY: Final = "^([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"
TIME: Final = "^[1-9][0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?Z$"
CAMEL_REASON: Final = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
CAMEL_WORD: Final = "^[A-Z][A-Za-z0-9]*$"
UID: Final = "^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$"
PROPORTION: Final = "^[0-9]+/[0-9]+$"
KERNEL_NAME: Final = "^[a-z0-9_]+$"
HEX_OR_NOTHING: Final = "^[0-9a-f]*$"
STORE_KEYS: Final = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?[.]$"

WORDS: Final = {
    DNS_LABEL: "lower-case letters, digits and '-', with a letter or digit at both ends",
    DNS_1035: "lower-case letters, digits and '-', a letter first and no '-' last",
    DNS_SUBDOMAIN: "lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
    HOST: "a host name or address, without scheme, port or path",
    CIDR: "an address range such as 203.0.113.0/24 or 2001:db8::/32",
    HTTP_URL: "an address that starts with http:// or https://",
    STORE_URL: "an address that starts with s3://, gs://, az://, https://, http:// or file://",
    OBJECT_PREFIX: "letters, digits, '-', '_', '.' and '/', with no part that starts with '.'",
    IMAGE: "an image such as registry.example/name:tag",
    ENV_NAME: "letters, digits and '_', no digit first",
    DATA_KEY: "letters, digits, '-', '_' and '.'",
    QUANTITY: "a quantity: a whole number, or text such as 500m or 2Gi",
    TIME: "a time in UTC such as 2027-01-31T12:00:00Z",
    CAMEL_REASON: "one word such as LeaseExpired",
    CAMEL_WORD: "one word such as TrainerReady",
    UID: "letters, digits and '-', with a letter or digit at both ends",
    PROPORTION: "two numbers such as 3/4",
    KERNEL_NAME: "lower-case letters, digits and '_'",
    STORE_KEYS: "lower-case letters, digits, '-' and '.', with a letter or digit first and a '.' last",
    HEX_OR_NOTHING: "hexadecimal digits, or nothing",
}
"""How a value that does not fit is told what to be."""
