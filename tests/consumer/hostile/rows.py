# SPDX-License-Identifier: MIT
"""The table of hostile.py: every way in which the headers are compiled."""

import random
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import FAMILIES, HERE, REFERENCE, ROOT, Bench, Failure, NotRun, numbers_of
from contraction import nothing_is_fused, planted_is_seen

CONSUMER = HERE.parent
NATIVE = ["-std=c++20", "-O1", "-march=native", "-DFOVEA_NATIVE_ONLY"]
LEVELS = ["-std=c++20", "-O1"]
SYNTAX = ["-std=c++20", "-DFOVEA_NATIVE_ONLY"]
# Rows that change a flag build these, which are quick to compile: lists of keys forward, backward
# and decoding; transforms.
FEW = ["indexed", "spectral"]
EVERYTHING = """#include <fovea/fovea.hpp>
#include <fovea/io.hpp>
#include <fovea/layers/fat_layer.hpp>
#include <fovea/layers/fourier_mixer_layer.hpp>
#include <fovea/layers/fsat_layer.hpp>
#include <fovea/spectral.hpp>
int main() { return fovea::FullAttention::name() == nullptr; }
"""


@dataclass
class Row:
    """A way to compile the program."""

    name: str
    how: str  # what is special, for the page
    run: Callable[[Bench], str]
    is_short: bool = False


def flags_row(name: str, how: str, units: list[str] | None = None, compiler: str = "",
              base: list[str] | None = None, link: str = "", short: bool = False,
              same: bool = False) -> Row:
    """A program with separate flags; `how` is these flags. If `same`, it must have the bits of the
    reference: the same compiler made it, and must have done so on the same machine."""
    flags = [*(base or NATIVE), *how.split()]

    def run(bench: Bench) -> str:
        note = bench.program(compiler.split() or bench.here, flags, units or FEW, link.split())
        if same and not note.endswith("the reference's bits"):
            raise Failure(f"{note}; the reference's are of the last {REFERENCE} with --write")
        return note

    return Row(name, f"{compiler} {how}".strip(), run, short)


def refused_row(name: str, how: str, message: str, compiler: str = "",
                text: str = EVERYTHING, short: bool = False) -> Row:
    def run(bench: Bench) -> str:
        return bench.refused(compiler.split() or bench.here, [*SYNTAX, *how.split()], text, message)

    return Row(name, f"{compiler} {how}".strip(), run, short)


# ---- compilers and standards


def reference_program(bench: Bench) -> Path:
    """The reference's program, with the families that are chosen."""
    if "reference" not in bench.programs:
        units = bench.chosen(FAMILIES)
        objects = bench.objects_of(["g++-12"], LEVELS, units)
        objects.append(bench.main_of(["g++-12"], LEVELS, units))
        program = bench.new_folder() / "program"
        bench.must(["g++-12", *map(str, objects), "-o", str(program), "-lfftw3f", "-lfftw3"])
        bench.programs["reference"] = program
    return bench.programs["reference"]


def compilers() -> list[Row]:
    def reference(bench: Bench) -> str:
        output = bench.run(reference_program(bench))
        bench.numbers.update(numbers_of(output))
        return bench.judge(output, bench.chosen(FAMILIES))

    rows = [Row(REFERENCE, "g++-12 -O1, every level: the reference", reference)]
    rows.append(refused_row("compilers/g++-11", "", "fovea needs GCC 12 or later", "g++-11"))
    for compiler in ["clang++-22", "g++-13", "g++-14", "clang++-14", "clang++-16",
                     "clang++-19", "clang++-19 -stdlib=libc++"]:
        units = FAMILIES if compiler == "clang++-22" else ["softmax", "io", *FEW]
        rows.append(flags_row(f"compilers/{compiler.replace(' -stdlib=', ' ')}", "", units,
                              compiler))
    return rows


def standards() -> list[Row]:
    def row(compiler: str, standard: str) -> Row:
        def run(bench: Bench) -> str:
            empty = bench.compile_text(compiler.split(), [f"-std={standard}"], "")
            if empty.returncode != 0:
                raise NotRun(f"{compiler} knows no -std={standard}")
            return bench.accepted(compiler.split(), [f"-std={standard}", "-DFOVEA_NATIVE_ONLY",
                                                     "-Wall", "-Wextra", "-Werror"],
                                  every_operator())

        return Row(f"standards/{compiler} {standard}", f"{compiler} -std={standard}, every operator",
                   run)

    return [row(compiler, standard)
            for compiler in ["g++-12", "clang++-19", "clang++-22"]
            for standard in ["gnu++20", "c++23", "c++26"]]


# ---- flags


def optimisation() -> list[Row]:
    rows = [flags_row(f"optimisation/g++-12 {level}", level, FAMILIES, "g++-12", same=True)
            for level in ["-O0", "-O2", "-O3", "-Os"]]
    rows += [flags_row(f"optimisation/clang++-19 {level}", level, FAMILIES, "clang++-19")
             for level in ["-O0", "-O3"]]
    rows += [
        flags_row("optimisation/no inline", "-fno-inline", FEW),
        flags_row("optimisation/lto, gcc", "-O2 -flto=auto", FEW, "g++-12"),
        flags_row("optimisation/lto, gcc, fat", "-O2 -flto=auto -ffat-lto-objects", FEW, "g++-12"),
        flags_row("optimisation/lto, clang, full", "-O2 -flto -fuse-ld=lld-19", FEW, "clang++-19"),
        flags_row("optimisation/lto, clang, thin", "-O2 -flto=thin -fuse-ld=lld-19", FEW,
                  "clang++-19"),
    ]

    def unity(bench: Bench) -> str:
        source = bench.new_folder() / "unity.cpp"
        families = bench.chosen(FAMILIES)
        source.write_text("".join(f'#include "{HERE / unit}.cpp"\n' for unit in families))
        to = source.with_suffix(".o")
        bench.must([*bench.here, *NATIVE, "-O0", *bench.includes(), "-c", str(source), "-o", str(to)])
        main = bench.main_of(bench.here, NATIVE, families)
        return bench.link_and_judge(bench.here, NATIVE, [str(to), str(main)], families)

    rows.append(Row("optimisation/unity", "-O0, all units in one source", unity))
    return rows


def language() -> list[Row]:
    return [
        flags_row("language/no exceptions", "-fno-exceptions"),
        flags_row("language/no rtti", "-fno-rtti", ["io", *FEW]),
        flags_row("language/libstdc++ assertions", "-D_GLIBCXX_ASSERTIONS", FEW),
        flags_row("language/libstdc++ debug", "-D_GLIBCXX_DEBUG -D_GLIBCXX_DEBUG_PEDANTIC", ["io", *FEW]),
        flags_row("language/libc++ hardened",
                  "-stdlib=libc++ -D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_DEBUG", FEW,
                  "clang++-19"),
        flags_row("language/fortified", "-O2 -D_FORTIFY_SOURCE=3 -fstack-protector-strong "
                  "-fstack-clash-protection -fcf-protection=full", FEW),
        flags_row("language/position independent", "-fPIC", ["spectral"]),
        flags_row("language/position dependent", "-fno-pic -no-pie", ["spectral"]),
        flags_row("language/static", "-static", FEW),
        flags_row("language/unsigned char", "-funsigned-char", ["io", "spectral"]),
        flags_row("language/short enums", "-fshort-enums", ["io", *FEW]),
        flags_row("language/no strict aliasing", "-fno-strict-aliasing -fwrapv", FEW),
        flags_row("language/NDEBUG", "-DNDEBUG", FEW),
        flags_row("language/sanitizers, gcc", "-fsanitize=address,undefined", ["spectral"]),
        flags_row("language/sanitizers, clang", "-fsanitize=address,undefined -fuse-ld=lld-19",
                  ["spectral"], "clang++-19"),
        flags_row("language/sanitizers, threads", "-fsanitize=thread -Wno-tsan", ["spectral"]),
    ]


def floating_point() -> list[Row]:
    nan = "fovea needs NaN and infinity: build without -ffast-math and -ffinite-math-only"
    rows = []
    for compiler in ["g++-12", "clang++-14", "clang++-19"]:
        for flag in ["-ffast-math", "-ffinite-math-only", "-Ofast"]:
            rows.append(refused_row(f"floating point/{compiler} {flag}", flag, nan, compiler))
    rounds = "fovea rounds by adding and subtracting"
    rows += [
        refused_row("floating point/unsafe", "-funsafe-math-optimizations", rounds, "g++-12"),
        refused_row("floating point/associative",
                    "-fassociative-math -fno-signed-zeros -fno-trapping-math", rounds, "g++-12"),
        refused_row("floating point/x87", "-mfpmath=387",
                    "fovea needs float arithmetic in float", "g++-12"),
        flags_row("floating point/rounding", "-frounding-math", FEW, "g++-12"),
        flags_row("floating point/contract off", "-O2 -ffp-contract=off", FAMILIES, "g++-12",
                  same=True),
        flags_row("floating point/contract fast", "-O2 -ffp-contract=fast", FAMILIES, "clang++-19"),
        flags_row("floating point/contract off, clang", "-O2 -ffp-contract=off", FAMILIES,
                  "clang++-19"),
        flags_row("floating point/no errno", "-fno-math-errno -fno-trapping-math", FEW, "g++-12"),
    ]
    return rows


# ---- macros of others

MACROS = {
    "windows": """small=char interface=struct IN= OUT= OPTIONAL= ERROR=0 CALLBACK=__stdcall
        DELETE=(0x00010000L) TRUE=1 FALSE=0 BOOL=int CONST=const VOID=void WINAPI=__stdcall
        NO_ERROR=0L STRICT=1 PASCAL=__stdcall cdecl=_cdecl IGNORE=0 INFINITE=0xFFFFFFFF DIFFERENCE=11
        CreateWindow=CreateWindowW GetObject=GetObjectW LoadImage=LoadImageW ABSOLUTE=1 RELATIVE=2
        GetMessage=GetMessageW SendMessage=SendMessageW Yield()= Rectangle=0 TRANSPARENT=1
        OPAQUE=2 THIS=INTERFACE hyper=__int64 MB_OK=0L""",
    "x11": """None=0L Status=int Success=0 Always=2 Bool=int Complex=0 Convex=2 True=1 False=0
        CursorShape=0 KeyPress=2 KeyRelease=3 FocusIn=9 FocusOut=10 Above=0 Below=1 Nonconvex=1
        Unsorted=0 Expose=12 GrayScale=1 Opposite=4 FontChange=255 Absolute=1 Button1=1
        AllocNone=0 LineSolid=0 DirectColor=5 StaticGray=0 WhenMapped=1 NotUseful=0""",
    "unix": "unix=1 linux=1 i386=1 vax=1 sun=1 major(x)=((x)>>8) minor(x)=((x)&255) "
            "makedev(a,b)=((a)<<8|(b)) MIN(a,b)=((a)<(b)?(a):(b)) MAX(a,b)=((a)>(b)?(a):(b)) "
            "HUGE=3.4e38f DOMAIN=1 OVERFLOW=3 EMPTY=0 ECHO=8 B0=0 B50=1 CSTART=17 PAGE_SIZE=4096",
    "minimum and maximum": "min(a,b)=(((a)<(b))?(a):(b)) max(a,b)=(((a)>(b))?(a):(b))",
    "assert": "assert(x)=other_assert(x)",
    "letters": "I=(__extension__1.0iF) _N=2 _C=4 _S=8 _B=128 _U=1 _L=2 _X=64 DEBUG=1 LOG=2 "
               "INFO=1 WARNING=2 PI=3.14159 EPS=1e-6 BIG=1 LITTLE=2",
}


def every_operator() -> str:
    """A program that calls every pass of every operator."""
    return (CONSUMER / "flags" / "every_operator.cpp").read_text()


def std_headers() -> str:
    """What the headers include of std, Eigen and others: they come before such macros, which they
    would not survive."""
    names = set()
    for header in (ROOT / "include").rglob("*.hpp"):
        names |= set(re.findall(r"^#include <([^>]+)>", header.read_text(), re.MULTILINE))
    names = {name for name in names if not re.match("omp|oneapi|arm_neon", name)}
    return "".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n"
                   for name in sorted(names))


def defined(macros: str) -> str:
    """Lines that define macros, which are given as NAME=value."""
    pairs = [word.partition("=") for word in macros.split()]
    return "".join(f"#undef {re.sub('[(].*', '', name)}\n#define {name} {value}\n"
                   for name, _, value in pairs)


def macros() -> list[Row]:
    def all_of(names: list[str]) -> Callable[[Bench], str]:
        def run(bench: Bench) -> str:
            text = std_headers() + "".join(defined(MACROS[name]) for name in names)
            # A declaration: the headers of others have been read already.
            text += "void other_assert(bool);\n" if "assert" in names else ""
            still = "".join(f"#ifndef {re.sub('[(].*', '', word.partition('=')[0])}\n#error a "
                            "header has taken it away, so this shows nothing\n#endif\n"
                            for name in names for word in MACROS[name].split())
            return bench.accepted(bench.here, SYNTAX,
                                  text + "#include <fovea/io.hpp>\n" + every_operator() + still)

        return run

    rows = [Row(f"macros/{name}", f"macros of the kind: {name}", all_of([name])) for name in MACROS]
    rows.append(Row("macros/all at once", "all of the above", all_of(list(MACROS)), True))

    def complex_first(bench: Bench) -> str:
        flags = ["-std=gnu++20", "-DFOVEA_NATIVE_ONLY"]
        return bench.accepted(bench.here, flags, "#include <complex.h>\n" + EVERYTHING)

    rows.append(Row("macros/complex.h", "<complex.h>, whose I is a macro, before all headers",
                    complex_first))

    def system_first(bench: Bench) -> str:
        names = """aio alloca argp arpa/inet assert cpio ctype dirent dlfcn elf endian errno execinfo
            fcntl features fenv float fmtmsg fnmatch ftw glob grp iconv ifaddrs inttypes langinfo
            libgen limits link locale malloc math mntent monetary mqueue net/if netdb netinet/in
            netinet/tcp nl_types obstack paths poll printf pthread pwd regex sched search
            semaphore setjmp shadow signal spawn stdio stdlib string strings sys/epoll sys/file
            sys/io sys/ioctl sys/ipc sys/mman sys/param sys/poll sys/prctl sys/ptrace sys/quota
            sys/reg sys/resource sys/select sys/sem sys/shm sys/signalfd sys/socket sys/stat
            sys/syscall sys/sysinfo sys/sysmacros sys/time sys/timeb sys/times sys/ucontext sys/uio
            sys/un sys/user sys/utsname sys/wait syslog tar termios time uchar ucontext ulimit unistd
            utime utmp wchar wctype wordexp complex tgmath linux/fs linux/input linux/kernel
            linux/limits""".split()
        text = "".join(f"#if __has_include(<{name}.h>)\n#include <{name}.h>\n#endif\n"
                       for name in names if name not in ("termios", "tgmath"))
        flags = ["-std=gnu++20", "-DFOVEA_NATIVE_ONLY"]
        return bench.accepted(bench.here, flags, text + EVERYTHING)

    rows.append(Row("macros/headers of the C library", "a hundred headers of glibc and the kernel "
                    "before all headers", system_first, True))

    def keywords(bench: Bench) -> str:
        flags = ["-std=gnu++20", "-DFOVEA_NATIVE_ONLY"]
        return bench.accepted(bench.here, flags, "#define near\n#define far\n#define slots\n"
                              "#define emit\n" + EVERYTHING)

    rows.append(Row("macros/windows and Qt", "near, far, slots and emit are macros, before "
                    "all headers", keywords, True))
    rows.append(refused_row("macros/X11 before Eigen", "-DSuccess=0",
                            "The preprocessor symbol 'Success' is defined, possibly by the X11"))
    return rows


def eigen_macros() -> list[Row]:
    base = [*NATIVE, "-O0"]
    rows = [flags_row(f"eigen/{how.replace('-DEIGEN_', '').lower()}", how, ["layers"], base=base)
            for how in [
        "-DEIGEN_MAX_ALIGN_BYTES=0", "-DEIGEN_DONT_VECTORIZE", "-DEIGEN_DEFAULT_TO_ROW_MAJOR",
        "-DEIGEN_DEFAULT_DENSE_INDEX_TYPE=int", "-DEIGEN_USE_THREADS",
        "-DEIGEN_INITIALIZE_MATRICES_BY_NAN", "-DEIGEN_NO_AUTOMATIC_RESIZING",
        "-DEIGEN_NO_DEBUG"]]

    def no_malloc(bench: Bench) -> str:
        try:
            return bench.program(bench.here, [*base, "-DEIGEN_NO_MALLOC"], ["layers"])
        except Failure as failure:
            if "heap allocation is forbidden" not in str(failure):
                raise
            return "refused: Eigen's own \"heap allocation is forbidden\", when it runs"

    rows.append(Row("eigen/no_malloc", "-DEIGEN_NO_MALLOC", no_malloc))
    rows.append(flags_row("eigen/no_malloc, operators", "-DEIGEN_NO_MALLOC", FEW,
                          base=base))

    def eigen5(bench: Bench) -> str:
        if not bench.eigen5:
            raise NotRun("no Eigen 5 here: name its folder by --eigen5 (neither Debian 12 nor PyPI "
                         "has it)")
        version = (Path(bench.eigen5) / "Eigen" / "Version").read_text()
        numbers = re.findall(r"EIGEN_(?:MAJOR|MINOR|PATCH)_VERSION (\d+)", version)
        note = bench.program(bench.here, base, ["half", "layers", *FEW],
                             eigen=bench.eigen5)
        return f"Eigen {'.'.join(numbers)}: {note}"

    rows.append(Row("eigen/5", "Eigen 5 instead of 3.4", eigen5))
    return rows


# ---- several units in one program

MIXED = {"o0": "-O0 -UNDEBUG", "o2": "-O2 -DNDEBUG", "avx2": "-O1 -mavx2 -mfma -UNDEBUG",
         "avx512f": "-O1 -mavx512f -mavx2 -mfma", "native": "-O1 -march=native -DNDEBUG"}


def mixed() -> list[Row]:
    def parts(bench: Bench) -> tuple[dict[str, list[Path]], list[str]]:
        common = ["-std=c++20", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
        families = bench.chosen(FAMILIES)
        objects = {name: bench.objects_of(bench.here, [*common, *flags.split()], families,
                                          f"__{name}")
                   for name, flags in MIXED.items()}
        return objects, [f"{unit}__{name}" for unit in families for name in MIXED]

    def linked(order: int, archives: bool) -> Callable[[Bench], str]:
        def run(bench: Bench) -> str:
            objects, units = parts(bench)
            main = bench.main_of(bench.here, LEVELS, units)
            files = []
            for name, some in list(objects.items())[::order]:
                if archives:
                    archive = bench.new_folder() / f"lib{name}.a"
                    bench.must(["ar", "rcs", str(archive), *map(str, some)])
                    some = [archive]
                files += map(str, some)
            return bench.link_and_judge(bench.here, LEVELS, [str(main), *files], units)

        return run

    def shared(bench: Bench) -> str:
        objects, units = parts(bench)
        main = bench.main_of(bench.here, LEVELS, units)
        exports = 0
        libraries = []
        for half in [["o0", "native"], ["o2", "avx2", "avx512f"]]:
            library = bench.new_folder() / f"lib{half[0]}.so"
            bench.must([*bench.here, "-shared", *(str(o) for n in half for o in objects[n]),
                        "-o", str(library), "-pthread"])
            # Type names and vtables that std::thread creates for a lambda are data.
            functions = [line for line in bench.must(["nm", "-D", "--defined-only", str(library)])
                         .splitlines() if re.search(" [TWi] ", line)]
            exported = [line for line in functions if "5fovea" in line]
            if exported:
                raise Failure(f"{library.name} exports {exported[0].split()[-1]}")
            exports += len(functions)
            libraries.append(str(library))
        rpath = [f"-Wl,-rpath,{Path(library).parent}" for library in libraries]
        note = bench.link_and_judge(bench.here, LEVELS, [str(main), *libraries], units, rpath)
        return f"{note}; {exports} functions exported, none of fovea"

    how = "; ".join(MIXED.values())
    return [Row("mixed/objects", f"units of one program: {how}", linked(1, False)),
            Row("mixed/objects, reversed", "the same, linked the other way round",
                linked(-1, False)),
            Row("mixed/archives", "the same as static archives", linked(1, True)),
            Row("mixed/archives, reversed", "the same, linked the other way round",
                linked(-1, True)),
            Row("mixed/shared objects", "the same as two shared objects with hidden symbols",
                shared)]


def audit() -> list[Row]:
    script = str(CONSUMER / "mixed_flags" / "audit.sh")

    def row(compiler: str, optimisation: str, units: list[str]) -> Row:
        def run(bench: Bench) -> str:
            families = bench.chosen(units)
            objects = bench.objects_of([compiler], ["-std=c++20", optimisation], families)
            shared = 0
            for found in objects:
                text = bench.must(["bash", script, str(found)])
                shared += int(text.split()[2])
            return f"{shared} functions of {' '.join(families)} that the linker may share: none holds " \
                   "instructions beyond the baseline"

        return Row(f"audit/{compiler} {optimisation}", f"{compiler} {optimisation}, every level: nm "
                   "and objdump", run)

    def planted(bench: Bench) -> str:
        to = bench.new_folder() / "planted.o"
        bench.must([*bench.here, "-O2", "-c", str(CONSUMER / "mixed_flags" / "planted.cpp"),
                    "-o", str(to)])
        done = bench.call(["bash", script, str(to)])
        if done.returncode == 0 or "planted" not in done.stdout:
            raise Failure(f"the audit does not see what is planted: {done.stdout}")
        return f"the audit sees what is planted: {done.stdout.splitlines()[0]}"

    how = "-O2: no product is fused with a sum but where the source says fma"
    return [row("g++-12", "-O1", FAMILIES), row("g++-12", "-O0", FEW), row("clang++-19", "-O2", FEW),
            Row("audit/planted", "a function with AVX2 code that the linker may share", planted),
            Row("audit/contraction", how, lambda bench: nothing_is_fused(bench, FAMILIES)),
            Row("audit/contraction, layers", how, lambda bench: nothing_is_fused(bench, ["layers"]),
                True),
            Row("audit/contraction, planted", "a line that is fused", planted_is_seen, True)]


# ---- machines


def machines() -> list[Row]:
    def emulated(cpu: str, highest: str) -> Callable[[Bench], str]:
        def run(bench: Bench) -> str:
            program = reference_program(bench)
            output = bench.run(program, ["qemu-x86_64", "-cpu", cpu])
            note = bench.judge(output, bench.chosen(FAMILIES))
            if f"{highest}:" not in note:
                raise Failure(f"{note}; expected level {highest} as the highest")
            return note

        return run

    def cross(compiler: str, emulator: str, root: str, units: list[str],
              message: str = "") -> Callable[[Bench], str]:
        def run(bench: Bench) -> str:
            flags = ["-std=c++20", "-O1"]
            note = bench.program([compiler], flags, units,
                                 emulator=[emulator, "-L", f"/usr/{root}"])
            if not message:
                return note
            text = "#include <fovea/io/npy.hpp>\n"
            return f"{note}; files: {bench.refused([compiler], flags, text, message)}"

        return run

    bits = "fovea needs a 64-bit target"
    return [
        Row("machines/Nehalem", "the reference's program under qemu-x86_64 -cpu Nehalem",
            emulated("Nehalem", "baseline")),
        Row("machines/Haswell", "the same with -cpu Haswell-noTSX, which has AVX2 and no AVX-512",
            emulated("Haswell-noTSX", "v3")),
        Row("machines/aarch64", "aarch64-linux-gnu-g++ under qemu-aarch64, without FFTW",
            cross("aarch64-linux-gnu-g++", "qemu-aarch64", "aarch64-linux-gnu",
                  ["softmax", "indexed", "half", "io"])),
        Row("machines/s390x", "s390x-linux-gnu-g++ under qemu-s390x: the highest byte first",
            cross("s390x-linux-gnu-g++", "qemu-s390x", "s390x-linux-gnu",
                  ["softmax", "linear", "indexed", "half"], "lowest byte first")),
        refused_row("machines/i386", "-m32", bits, "g++-12",
                    "#include <fovea/core/config.hpp>\n"),
        refused_row("machines/x32", "-mx32", bits, "g++-12", "#include <fovea/core/config.hpp>\n"),
        refused_row("machines/armhf", "", bits, "arm-linux-gnueabihf-g++"),
    ]


# ---- includes


def mpi_flags() -> list[str]:
    """Where the headers of MPI are; nothing without MPI."""
    if shutil.which("mpicxx") is None:
        return []
    shown = subprocess.run(["mpicxx", "-show"], capture_output=True, text=True, check=False).stdout
    folders = [word[2:] for word in shown.split() if word.startswith("-I")]
    return ["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX",
            *(flag for folder in folders for flag in ("-isystem", folder))]


def includes() -> list[Row]:
    # Headers of ranks need MPI, whose own headers are not tested.
    mpi = mpi_flags()
    left_out = r"\.inl\.hpp$|foreach_level|/fovea/compiled\.hpp|executor_(openmp|tbb)" + ("" if mpi else "|/distributed")
    public = sorted(str(path.relative_to(ROOT / "include"))
                    for path in (ROOT / "include").rglob("*.hpp")
                    if not re.search(left_out, str(path)))

    def alone(bench: Bench) -> str:
        def one(header: str) -> None:
            bench.accepted(bench.here, [*SYNTAX, *mpi, "-DFOVEA_COMPILED", "-Wall", "-Werror"],
                           f"#include <{header}>\n#include <{header}>\nint main() {{}}\n")

        headers = public
        if bench.is_short:
            # A compiler for each is minutes: the suite takes every eighth, others after each change.
            text = b"".join((ROOT / "include" / header).read_bytes() for header in public)
            headers = public[zlib.crc32(text) % 8::8]
        for job in [bench.pool.submit(one, header) for header in headers]:
            job.result()
        return f"{len(headers)} headers"

    def shuffled(seed: int) -> Callable[[Bench], str]:
        def run(bench: Bench) -> str:
            order = list(public)
            random.Random(seed).shuffle(order)
            text = "".join(f"#include <{header}>\n" for header in order)
            note = bench.accepted(bench.here, [*SYNTAX, *mpi, "-Wall", "-Wextra", "-Werror"],
                                  text + text + "int main() {}\n")
            return f"{note}: {len(order)} headers, twice"

        return run

    return [Row("includes/alone", "each header alone, twice", alone, True),
            *(Row(f"includes/shuffled {seed}", "all headers in a drawn order, twice",
                  shuffled(seed), seed == 1) for seed in (1, 2, 3))]


def quick() -> list[Row]:
    return [flags_row("quick/files and transforms", "-Wall -Wextra -Werror", ["io", "spectral"],
                      short=True)]


def table() -> list[Row]:
    return [*compilers(), *audit(), *machines(), *mixed(), *eigen_macros(), *language(),
            *optimisation(), *floating_point(), *macros(), *standards(), *includes(), *quick()]
