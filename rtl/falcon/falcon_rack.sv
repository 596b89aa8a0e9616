// Loss detection by time (RACK): searches the packets in flight that a rule declares lost, one packet a cycle.
//
// Source: Falcon (SIGCOMM'25) section 4.3. The rule {range, sent_until, age}: a packet of the range that has not
// arrived, and was last sent not later than `sent_until`, is lost once that is `age` ago. Times have 24 bits in units
// of 131.072 ns and are compared by their difference, so they must not be more than 1.1 s apart. The time of a packet
// is in a memory of one entry for each of the 128 packets of a window; this memory is the cost of the method: 384 bytes
// for each window of each connection, where a rule by distance needs none.
//
// A search starts with `start_i` and takes a cycle for each packet of the range that has not arrived, and two more.
// `due_o` is the shortest time until another packet of the range is lost.
module falcon_rack (
    input  logic         clk,
    input  logic         rst_n,
    input  logic         sent_i,          // the packet in this slot is sent now
    input  logic [6:0]   sent_slot_i,
    input  logic [23:0]  now_i,
    input  logic         start_i,         // only while not busy
    input  logic [6:0]   base_slot_i,     // slot of the oldest packet
    input  logic [7:0]   count_i,         // packets of the range, from the oldest on
    input  logic [127:0] arrived_i,       // by distance from the oldest
    input  logic [23:0]  sent_until_i,
    input  logic [23:0]  age_i,
    output logic         busy_o,
    output logic         lost_o,
    output logic [6:0]   lost_at_o,       // distance from the oldest
    output logic         done_o,
    output logic         is_due_o,        // with `done_o`: a packet will be lost at the age that `due_o` is away
    output logic [23:0]  due_o
);
  logic [23:0]  times[128];
  logic [127:0] missing_q, isolated, in_range;
  logic [6:0]   base_q, at, read_at_q;
  logic [23:0]  sent_until_q, age_q, started_q, time_q, elapsed, wait_left, due_q;
  logic         found, busy_q, read_q, is_late, is_old, covered, has_due_q, ends_q;

  below_mask #(.W(128)) i_range (.count_i(count_i), .mask_o(in_range));
  first_set #(.W(128)) i_missing (.map_i(missing_q), .found_o(found), .position_o(at));
  assign isolated = 128'd1 << at;

  // The packet whose time was read in the cycle before.
  serial_after i_late (.a_i(time_q), .b_i(sent_until_q), .after_o(is_late));
  assign elapsed = started_q - time_q;
  assign wait_left = age_q - elapsed;
  assign is_old = elapsed >= age_q;
  assign covered = read_q && !is_late;
  assign lost_o = covered && is_old;
  assign lost_at_o = read_at_q;
  assign busy_o = busy_q;
  assign done_o = ends_q;
  assign is_due_o = has_due_q;
  assign due_o = due_q;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      busy_q <= 1'b0;
      read_q <= 1'b0;
      ends_q <= 1'b0;
    end else begin
      read_q <= busy_q && found;
      ends_q <= busy_q && !found && !start_i;
      if (start_i) busy_q <= 1'b1;
      else if (!found) busy_q <= 1'b0;
    end
    if (start_i) begin
      missing_q <= ~arrived_i & in_range;
      base_q <= base_slot_i;
      sent_until_q <= sent_until_i;
      age_q <= age_i;
      started_q <= now_i;
      has_due_q <= 1'b0;
    end else begin
      missing_q <= missing_q & ~isolated;
      if (covered && !is_old && (!has_due_q || (wait_left < due_q))) begin
        has_due_q <= 1'b1;
        due_q <= wait_left;
      end
    end
    read_at_q <= at;
    time_q <= times[base_q + at];
    if (sent_i) times[sent_slot_i] <= now_i;
  end
endmodule
