#!/usr/bin/env bash
# A channel that uses the gateway, with curl and jq. Each input line stands for a message from a chat platform: session, the
# platform's id of the message, and text. Replies are printed as they arrive, until Ctrl-C.
#
#   echo 's1 m-1 Where is order A1001?' | examples/channel/channel.sh
#
# Environment: GATEWAY, TOKEN (if the gateway requires one), AGENT, CHANNEL, STATE (a folder that remembers the delivered
# replies), and STREAM=1 to show texts while the model writes them.
set -euo pipefail

gateway=${GATEWAY:-http://127.0.0.1:8080} agent=${AGENT:-support} channel=${CHANNEL:-shell}
state=${STATE:-$HOME/.turnwheel-channel-$channel} stream=${STREAM:-}
auth=()
[ -z "${TOKEN:-}" ] || auth=(-H "Authorization: Bearer $TOKEN")
mkdir -p "$state"
touch "$state/.delivered"

# accept SESSION MESSAGE-ID TEXT: posts until the gateway has accepted the message. Repeats have the same id: one turn.
accept() {
    local body answer status
    body=$(jq -n --arg session "$1" --arg job "$2" --arg text "$3" --arg agent "$agent" --arg channel "$channel" \
        '{session_id: $session, job_id: $job, text: $text, agent_id: $agent, channel: $channel}')
    while true; do
        answer=$(curl -sS --max-time 10 "${auth[@]}" -H 'Content-Type: application/json' -d "$body" \
            -w '\n%{http_code}' "$gateway/api/v1/messages") || true
        status=${answer##*$'\n'}
        case $status in
        202) return 0 ;;
        4*) echo "refused: ${answer%$'\n'*}" >&2 && return 1 ;; # a repeat would fail, too
        *) sleep 1 ;;                                           # unreachable, or the queue is full: post it again
        esac
    done
}

# deliver REPLY: shows it to the user, unless it was delivered before. A crash between the last two lines shows it twice:
# pass the reply_id to a platform that drops repeats.
deliver() {
    local reply_id
    reply_id=$(jq -r --arg channel "$channel" 'select(.channel == $channel and .kind != "chunk") | .reply_id' <<<"$1")
    if [ -z "$reply_id" ] || grep -Fxq -- "$reply_id" "$state/.delivered"; then return; fi
    finish "$1" || jq -r '"\(.session_id) [\(.kind)] \(.text)"' <<<"$1"
    echo "$reply_id" >>"$state/.delivered"
}

# The growing text of this session: its stream, its next chunk, its turn, and the text so far.
growing='' next=0 turn='' words=''

# grow CHUNK: appends the next chunk, or starts a text, which may supersede the growing one (`supersedes`). All other chunks
# are repeats, or the start of their text was missed; the whole text follows.
grow() {
    local id seq of text supersedes anew=''
    # Each value is on its own line, as JSON, because the text may have several lines.
    { read -r id && read -r seq && read -r of && read -r supersedes && read -r text; } < <(jq -c --arg channel "$channel" \
        'select(.channel == $channel) | .stream_id, .seq, .turn_id, .supersedes, .text' <<<"$1") || return 0
    text=$(jq -r '. + "."' <<<"$text") && text=${text%.}
    if [ "$id" = "$growing" ] && [ "$seq" = "$next" ]; then
        printf '%s' "$text"
        next=$((next + 1)) words+=$text
    elif [ "$seq" = 0 ] && { [ -z "$growing" ] || [ "$of" != "$turn" ] || [ "$supersedes" = "$growing" ]; }; then
        [ "$supersedes" = null ] || anew='(starts over) '
        printf '\n%s [chunk] %s%s' "$(jq -r .session_id <<<"$1")" "$anew" "$text"
        growing=$id next=1 turn=$of words=$text
    fi
}

# finish REPLY: ends the line of the growing text. If the reply is that text, prints the missing rest and returns true.
finish() {
    [ -n "$growing" ] || return 1
    local id=$growing begun=$words text
    growing='' words=''
    text=$(jq -r '.text | ltrimstr("\n")' <<<"$1")
    if [ "$(jq -c .stream_id <<<"$1")" = "$id" ] && [ "${text#"$begun"}" != "$text" ]; then
        printf '%s\n' "${text#"$begun"}"
    else
        printf ' (discarded)\n'
        return 1
    fi
}

# follow SESSION: reads its events, starting after the last event of the previous connection.
follow() {
    local path line event='' data='' id=''
    path=$(jq -rn --arg id "$1" '$id | @uri')
    while true; do
        while IFS= read -r line; do
            case $line in
            'id:'*) id=${line#*: } ;;
            'event:'*) event=${line#*: } ;;
            'data:'*) data=${line#*: } ;;
            '')
                case $event$stream$data in
                reply1*'"kind":"chunk"'*) grow "$data" ;;
                reply*) deliver "$data" ;;
                esac
                [ -z "$id" ] || echo "$id" >"$state/$1"
                event='' data='' id=''
                ;;
            esac
        done < <(curl -sN "${auth[@]}" -H "Last-Event-ID: $(cat "$state/$1")" "$gateway/api/v1/sessions/$path/events")
        sleep 1
    done
}

# Job control, so that each follower has its own process group and ends together with its curl.
set -m
leave() {
    local pid
    for pid in $(jobs -p); do kill -- "-$pid" 2>/dev/null || true; done
}
trap leave EXIT
declare -A followed=()
for file in "$state"/*; do
    [ -f "$file" ] || continue
    followed[${file##*/}]=1
    follow "${file##*/}" &
done
while read -r session message text; do
    accept "$session" "$message" "$text" || continue
    if [ -z "${followed[$session]:-}" ]; then
        followed[$session]=1
        echo 0 >"$state/$session"
        follow "$session" &
    fi
done
wait
