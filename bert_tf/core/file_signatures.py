"""The first bytes of files that are not UTF-8 text."""

# UTF-32 comes before UTF-16, because the byte order marks of both start with the same two bytes.
_SIGNATURES = {
    b"\x1f\x8b": "is compressed with gzip; unpack it (gunzip)",
    b"BZh": "is compressed with bzip2; unpack it (bunzip2)",
    b"\xfd7zXZ": "is compressed with xz; unpack it (unxz)",
    b"PK\x03\x04": "is a workbook (.xlsx, .ods) or another zip archive; save its text or table as UTF-8",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook or another old office document; save its text or table as UTF-8",
    b"%PDF-": "is a PDF; extract its text first",
    b"PAR1\x15": "is a Parquet file; name it .parquet if the command reads Parquet, else save it as JSON Lines",
    b"\xff\xfe\x00\x00": "is UTF-32, not UTF-8; convert it: iconv -f UTF-32 -t UTF-8",
    b"\xff\xfe": "is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
}


def why_no_text(beginning: bytes) -> str:
    """Returns what a file with these first bytes is, and the remedy; "" if the file may be UTF-8 text."""
    return next((what for magic, what in _SIGNATURES.items() if beginning.startswith(magic)), "")
