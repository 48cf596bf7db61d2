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
    *("fedavg+adamw", "fedavg+sgd:momentum=0.9,nesterov=true,state=keep", "scaffold+sam:rho=0.1", "fedacg+lesam"),
    *("fedavg+adam:state=average", "feddyn+asam:rho=0.5,eta=0.1", "fedavg+sam+adamw:state=keep"),
)

SPELLINGS = (
    *("fedacg:", ":fedacg", "fedacg:lam", "fedacg:lam=", "fedacg:=1", "fedacg:lam==1", "fedacg:lam=1,lam=0.5", "+"),
    *("fedavg+", "+fedavg", "fedavg++acg", "fedavg+acg+acg", "fedacg:lam=0.9:beta=1", "FEDAVG", " fedavg ", "fed avg"),
    *("fedavg+adamw:lr=0.1", "fedavg+adam+sgd", "fedavg+adamw:state=keeep", "fedavg+sam+asam", "fednag+adamw", "sam"),
    *("fedcm+adam", "fedavg+muon", "fedavg+adam:beta1=1", "fedavg+sgd:momentum=0", "fedavg+sgd:nesterov=maybe"),
    *("fedavg+fedpaq+adamw:state=average", "fedavg+lesam:rho=-1", "fedavg+adam:eps=0", "fedavg+adam:decay=1"),
    *("acg", "fedavg+scaffold", "fedavg:" + "x=1," * 500, "fedavg" + "+acg" * 300, "fedpaq:bits=0", "fedpaq:bits=1e9"),
)

SCHEDULES = (
    *("constant", "cosine", "linear:end=0.1", "step:every=2", "cosine:warmup=1,over=steps", "step:every=1,factor=0.5"),
    *(
        "cosine:end=2",
        "step",
        "step:every=0",
        "step:every=1e-320",
        "step:every=1,factor=1e-60",
        "cosine:warmup=99",
        ":",
    ),
    *(
        "linear:rounds=1",
        "cosine:over=epochs",
        "constant:end=1",
        "exponential:every=3",
        "step:every=2,every=3",
        "cosin",
    ),
    *(
        "cosine:end",
        "cosine:=1",
        "step:every=nan",
        "constant:warmup=1e308",
        "constant:start=1e-300,warmup=5",
        "a" * 300,
    ),
)

METRICS = (
    *("accuracy", "top3", "top1", "top3,accuracy", "top999999", "mae", "exact_match", "perplexity", "top0", "top-1"),
    *("accuracy,accuracy", ",", "acuracy", "own:mine", "torchmetrics:", "torchmetrics:F1Score:num_classes=x", "top3 "),
    *("torchmetrics:Nothing", "loss", "train_loss", "top" + "9" * 50, "top٣", "accuracy:x=1", "a" * 300, "\x1b[31m"),
)

TASKS = (*("auto", "classification", "regression", "binary", "multilabel", "tokens", "segmentation", "own", "labels"),)
