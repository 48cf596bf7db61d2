"""Values that nobody should give: as text for the command line, as values of TOML, as objects of Python."""

from __future__ import annotations

NUMBERS = (
    *("0", "-0", "-1", "1", "2", "0.5", "1.5", "1e308", "-1e308", "1e400", "1e-320", "nan", "inf", "-inf", "NaN"),
    *("2147483648", "4294967296", "9223372036854775808", "1" + "0" * 40, "9" * 100_000, "0." + "9" * 10_000),
    *("0x10", "0b1", "1_0", "٣", "１２", "½", "∞", "+1", "--1", "1e", "1.5.2", "1,5", "1/2", " 3 ", "3\n", "1 2"),
    *("", " ", "True", "None", "null", "three"),
)

WORDS = (
    *("", " ", "\t", "\n", "a\nb", "-", "--", "---", ".", "..", "~", "é", "日本", "🙂", "\udcff", "a\udc80b"),
    *("\x1b[31mred", "\x7f", "\u202e", "\u2028", "%s%n", "{}", "{0}", "[]", "$HOME", "*", "?", "'", '"', "\\"),
    *(
        ":",
        ",",
        "=",
        "+",
        "a:b",
        "a=b",
        "a,b",
        ":::",
        ",,",
        "++",
        "None",
        "null",
        "True",
        "auto",
        "a" * 300,
        "x" * 9000,
    ),
)

METHODS = (
    *("fedavg", "fedacg", "fedprox", "scaffold", "mifa", "gradma-s", "feddyn", "moon", "fedprox+acg", "fedavg+fedpaq"),
    *("fedacg:lam=0.9,beta=0.001", "fedprox:mu=0.1", "fedavg+fedpaq:bits=4"),
)

SPELLINGS = (
    *("fedacg:", ":fedacg", "fedacg:lam", "fedacg:lam=", "fedacg:=1", "fedacg:lam==1", "fedacg:lam=1,lam=0.5", "+"),
    *("fedavg+", "+fedavg", "fedavg++acg", "fedavg+acg+acg", "fedacg:lam=0.9:beta=1", "FEDAVG", " fedavg ", "fed avg"),
    *("acg", "fedavg+scaffold", "fedavg:" + "x=1," * 500, "fedavg" + "+acg" * 300, "fedpaq:bits=0", "fedpaq:bits=1e9"),
)
