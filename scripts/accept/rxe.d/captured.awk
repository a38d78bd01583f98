# What `pumice capture` lists, reduced to what must be the same for all devices at the two ends: a line for each packet,
#
#   WHO OPCODE PSN FLAGS AND HEADERS BYTES
#
# and WHO is the requester, whose address is given, or the responder, or the connection manager of one of them, whose messages programs
# do not wait for before they send. Not kept: addresses, ports, keys and queue pair numbers; what a device chooses (communication
# ids, first PSNs of the connection manager); the MigReq bit (rxe sends 0, hardware and pumice 1); credits (rxe gives none); AckReq of
# datagrams to queue pair 1 (rxe sets it, and no receiver looks at it) and their PSNs, which count what queue pair 1 has sent,
# repeated messages included; how long anything took.
#
#   requester    an address
#   part         only what is between this mark and the next; marks are datagrams that are no RoCE packets. 0: all
#   own_numbers  the programs choose PSNs and immediate data: PSNs are counted from the first of their queue pair
#   once         only the first of packets that are the same: a machine that is slow for a moment makes the sender repeat a packet
$3 == ">" && $5 == "MALFORMED:" { marks++; next }
$3 != ">" || $8 != "psn" || (part && marks != part) { next }
{
    who = $2 == requester ? "requester" : "responder"
    answers = $5 ~ /ACKNOWLEDGE|RESPONSE/
    psn = $9
    if (own_numbers) {
        # Answers have the PSNs of what they answer.
        sequence = ((who == "requester") != answers) ($7 == "0x000001")
        if (!(sequence in first)) first[sequence] = psn
        psn = (psn - first[sequence] + 16777216) % 16777216
    }
    opcode = $5
    rest = $0
    sub(/^.* > [^ ]+ +[A-Z_]+ +qp 0x[0-9a-f]+ +psn [0-9]+/, "", rest)
    gsub(/ migrated| batch\[[0-9]+\]/, "", rest)
    gsub(/ (from |remote )?qp 0x[0-9a-f]+/, "", rest)
    gsub(/ va 0x[0-9a-f]+ rkey 0x[0-9a-f]+/, "", rest)
    gsub(/ invalidate 0x[0-9a-f]+/, " invalidate", rest)
    gsub(/ACK, credits [0-9]+/, "ACK", rest)
    gsub(/ (local|remote|request) id 0x[0-9a-f]+/, "", rest)
    gsub(/ starting psn [0-9]+/, "", rest)
    gsub(/ port [0-9]+ +to /, " to ", rest)
    gsub(/ (from|to) [0-9a-f:]+[.:][0-9a-f.:]+/, "", rest)
    if (own_numbers) {
        gsub(/ imm 0x[0-9a-f]+/, " imm", rest)
        gsub(/ original 0x[0-9a-f]+/, " original", rest)
    }
    sub(/ icrc.*/, "", rest)
    if ($7 == "0x000001") {
        who = who "-manager"
        psn = "-"
        sub(/ ack-request/, "", rest)
    }
    gsub(/ +/, " ", rest)
    sub(/ $/, "", rest)
    line = who " " opcode " " psn rest
    if (once && line in seen) next
    seen[line] = 1
    print line
}
