#!/bin/sh
# run_all OUTDIR [PART ..]: judges the CUDA path on this machine's driver and device, in at most 9
# minutes. tools/gpu_check makes the folder that it stands in. Without a PART, it runs all of them:
#
#   tests        gpu/ on this driver; each kernel by the product's image against ref/, by the shapes
#                of the emulated tests; and by the images of each builder
#   bench        bench-cuda: ceilings first, then figures with floors
#   conformance  the clauses of device memory; then the whole suite with every destination of a
#                load, query, key and hint in device memory, in parts beside each other
#   sanitizers   compute-sanitizer memcheck, racecheck and synccheck over the kernels' tests; where
#                that is not here it is said
#
# In OUTDIR: summary.txt, run.log (all output), cuda-DEVICE-COMMIT.csv (the figures). Ends with 0
# where all passed, 1 where something failed, did not end in its time or was not run for want of it.
# What compute-sanitizer would say is no failure where it is not installed.
#
#   SC_GPU_SECONDS    for all of it, 530
#   SC_GPU_SLOWER     so many times as long for each part, and all of it: on a busy machine
#   SC_GPU_TINY       1: little of each part, and no figure is judged: that this script works
#   SC_GPU_SANITIZER  compute-sanitizer; empty: none; unset: where it usually is
#
# Tests: ctest gpu_check_on_the_fake
set -u

usage='usage: run_all OUTDIR [tests] [bench] [conformance] [sanitizers]'
[ $# -ge 1 ] || { echo "$usage" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- tests bench conformance sanitizers
for chosen in "$@"; do
    case $chosen in
        tests | bench | conformance | sanitizers) ;;
        *) echo "$usage" >&2; exit 2 ;;
    esac
done
work=$out/work
begin=$(date +%s)
slower=${SC_GPU_SLOWER:-1} # so many times what parts take on a machine of their own
all_seconds=${SC_GPU_SECONDS:-$((530 * slower))}
tiny=${SC_GPU_TINY:-0}
failed=0
kernels="test_cuda_device_rows test_cuda_device_codec test_cuda_device_bitplanes
         test_cuda_device_importance test_cuda_device_tensor"

few=$kernels # where there is little time, or a checker makes each launch slow
[ "$tiny" = 1 ] && few="test_cuda_device_rows test_cuda_device_codec"

rm -rf "$work"
mkdir "$work"
trap 'rm -rf "$work"' EXIT
: >"$out/run.log"
: >"$out/summary.txt"
rm -f "$out"/cuda-*.csv
cd "$here" || exit 1 # spec-conformance finds its models from here

note() {
    printf '%s\n' "$*" | tee -a "$out/summary.txt"
}

# Seconds for a part: its own, or what is left but for a reserve.
seconds_for() { # MOST RESERVE
    left=$((begin + all_seconds - $(date +%s) - $2))
    [ "$left" -lt $(($1 * slower)) ] && echo "$left" || echo $(($1 * slower))
}

# A command's output to the log, and what it says of itself. NAME SECONDS LOG CODE TOOK
tell() {
    {
        echo "==== $1"
        cat "$3"
        echo "==== status $4"
    } >>"$out/run.log"
    case $4 in
        0) note "passed    $1 ($5 s)" ;;
        124 | 137)
            note "NOT DONE  $1: more than $2 s"
            note "            it had reached: $(grep -v '^ *$' "$3" | tail -1 | cut -c1-100)"
            failed=1
            ;;
        *)
            note "FAILED    $1: status $4"
            grep -E 'FAILED|DOES NOT HOLD|ERROR|Error|bench:|fails|expected' "$3" | tail -12 |
                sed 's/^/            /' | tee -a "$out/summary.txt"
            failed=1
            ;;
    esac
}

part() { # NAME MOST RESERVE command ..
    name=$1
    seconds=$(seconds_for "$2" "$3")
    shift 3
    if [ "$seconds" -lt 3 ]; then
        note "NOT RUN   $name: no time is left"
        failed=1
        return
    fi
    from=$(date +%s)
    timeout -k 5 "$seconds" "$@" >"$work/part.log" 2>&1
    code=$?
    reason=$(sed -n 's/^skipped: //p' "$work/part.log" | head -1)
    case "$name: $reason" in
        *' by '*': '*'no kernels for capability'* | *' by '*': '*'UNSUPPORTED_PTX_VERSION'*)
            # another device's image, or of a compiler that is newer than the driver
            note "skipped   $name: $reason"
            return
            ;;
        *': no CUDA device'*)
            note "FAILED    $name: $reason"
            failed=1
            return
            ;;
    esac
    # What single tests skip stands in the log; here it is said where no test of the part ran.
    [ -n "$reason" ] && ! grep -q '\[       OK \]' "$work/part.log" && name="$name: $reason"
    tell "$name" "$seconds" "$work/part.log" "$code" $(($(date +%s) - from))
}

# ---- Parts ---------------------------------------------------------------------------------------

run_tests() {
    part "gpu/ on this driver" 60 300 programs/test_gpu_real
    for test in $kernels; do
        part "$test" 60 300 programs/"$test"
    done
    for image in images/*; do
        [ -e "$image" ] || continue
        for test in $few; do
            part "$test by $(basename "$image")" 40 300 \
                 env SC_TEST_SAMPLE=1 SC_TEST_IMAGE="$image" programs/"$test"
        done
    done
}

run_bench() {
    size=full
    [ "$tiny" = 1 ] && size=tiny
    device=$(sed -n '1s/,.*//p' "$work/first.log" | tr -c 'A-Za-z0-9\n' '-')
    # What one breaks, or what takes too long, costs no other.
    for some in ceilings rows codes scores beside calls tier drive; do
        mkdir "$work/bench"
        part "bench cuda: $some" 60 120 programs/bench-cuda --size $size --parts $some \
             --dir "$work/bench" --csv "$out/cuda-$device-$(cat commit).csv" \
             --commit "$(cat commit)"
        rm -rf "$work/bench"
        sed 1,2d "$work/part.log"
    done
}

# What the suite asks of a store, and little staging, so that loads wait for boxes.
config='{"disk_bytes": "256MiB", "segment_bytes": "8MiB", "staging_bytes": "32MiB",
"max_requests": 16, "max_request_tokens": 8192,
"gpu": {"staging_bytes": "8MiB", "store_bytes": "8MiB"}}'

run_conformance() {
    SC_THROUGH_CONNECTOR=$here/lib/libspec_connector.so
    export SC_THROUGH_CONNECTOR
    mkdir -p "$work/clauses"
    part "conformance: clauses of device memory" 60 60 programs/spec-conformance \
         lib/libspec_connector.so --config "$config" --require-hits --patience 30 --limit 50 \
         --dir "$work/clauses" --only 199,200,201,202,203,204
    if grep -q 'takes no CUDA memory' "$work/part.log"; then
        note "FAILED    conformance: the connector takes no CUDA memory"
        failed=1
    fi
    parts=$(nproc)
    [ "$parts" -gt 12 ] && parts=12
    only=
    [ "$tiny" = 1 ] && parts=2 && only='--only 51,52'
    seconds=$(seconds_for 200 50)
    if [ "$seconds" -lt 10 ]; then
        note "NOT RUN   conformance through the device: no time is left"
        failed=1
        return
    fi
    from=$(date +%s)
    k=0
    pids=
    while [ $k -lt "$parts" ]; do
        k=$((k + 1))
        mkdir -p "$work/through-$k"
        # shellcheck disable=SC2086
        timeout -k 5 "$seconds" programs/spec-conformance lib/through_device.so \
                --config "$config" --require-hits --one-set --patience 30 --limit 100 \
                --dir "$work/through-$k" --part $k/"$parts" $only >"$work/through-$k.log" 2>&1 &
        pids="$pids $!"
    done
    k=0
    for pid in $pids; do
        k=$((k + 1))
        wait "$pid"
        tell "conformance through the device, part $k of $parts" "$seconds" \
             "$work/through-$k.log" $? $(($(date +%s) - from))
    done
}

sanitizer_find() {
    if [ -n "${SC_GPU_SANITIZER+set}" ]; then
        echo "$SC_GPU_SANITIZER"
        return
    fi
    for path in "$(command -v compute-sanitizer)" /usr/local/cuda*/bin/compute-sanitizer \
                /usr/local/cuda*/compute-sanitizer/compute-sanitizer; do
        [ -x "$path" ] && echo "$path" && return
    done
}

# A tool over all programs: its lines go to FILE, in the words of tell's first arguments.
sanitize() { # TOOL SECONDS
    for test in $few; do
        from=$(date +%s)
        SC_TEST_SAMPLE=1 timeout -k 5 "$2" "$sanitizer" --tool "$1" --error-exitcode 9 \
                                 programs/"$test" >"$work/$1-$test.log" 2>&1
        echo "$? $(($(date +%s) - from))" >"$work/$1-$test.code"
    done
}

run_sanitizers() {
    sanitizer=$(sanitizer_find)
    if [ -z "$sanitizer" ]; then
        note "not here  compute-sanitizer: memcheck, racecheck and synccheck did not run"
        return
    fi
    seconds=$(($(seconds_for 200 5) / 4)) # four programs, the tools beside each other
    if [ "$seconds" -lt 3 ]; then
        note "NOT RUN   compute-sanitizer: no time is left"
        failed=1
        return
    fi
    pids=
    for tool in memcheck racecheck synccheck; do
        sanitize $tool "$seconds" &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid"
    done
    for tool in memcheck racecheck synccheck; do
        for test in $few; do
            read -r code took <"$work/$tool-$test.code"
            tell "$tool of $test" "$seconds" "$work/$tool-$test.log" "$code" "$took"
        done
    done
}

# ---- All -----------------------------------------------------------------------------------------

note "commit $(cat commit), $(date -u '+%Y-%m-%d %H:%M UTC')"
programs/bench-cuda --parts none --size tiny --commit "$(cat commit)" >"$work/first.log" 2>&1
code=$?
note "$(head -1 "$work/first.log")"
if [ $code -ne 0 ] || grep -q '^skipped: ' "$work/first.log"; then
    note "nothing was judged"
    exit 1
fi
[ "$tiny" = 1 ] && SC_TEST_SAMPLE=1 && export SC_TEST_SAMPLE
for chosen in "$@"; do
    run_"$chosen"
done
word='all passed'
[ $failed -eq 0 ] || word='NOT ALL PASSED'
note "$(($(date +%s) - begin)) s; $word"
exit $failed
