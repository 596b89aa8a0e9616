// Set of flows, first in first out: up to four insertions and one removal in a cycle.
//
// Source: Tonic, section 3.1 (active set, ready-to-transmit set). A flow is inserted only while it is not in the set,
// so FLOWS places suffice. FLOWS is a power of two, and at least 8. Four interleaved banks hold the queue: up to four
// insertions, in the order of the ports, go to four consecutive places, which are in four banks.
//
// Insertions may come late in a cycle: they stand in registers first, and go to their places in the next cycle. A
// removal sees them at once, those of the same cycle too: `flow_o` of an empty set is the first one inserted.
module flow_set #(
    parameter int unsigned FLOWS = 1024
) (
    input  logic                       clk,
    input  logic                       rst_n,
    input  logic [3:0]                 push_i,
    input  logic [4*$clog2(FLOWS)-1:0] flow_i,
    input  logic                       pop_i,
    output logic                       found_o,
    output logic [$clog2(FLOWS)-1:0]   flow_o
);
  localparam int unsigned F = $clog2(FLOWS);
  localparam int unsigned ROWS = FLOWS / 4;
  localparam int unsigned R = $clog2(ROWS);

  // In the banks: from head to tail. Behind them, those that were inserted in the cycle before.
  logic [F-1:0]   head_q, tail_q;
  logic [F:0]     count_q;
  logic [3:0]     waits_q, waits_d, placed;
  logic [4*F-1:0] waiting_q;
  logic [2:0]     places;
  logic [3:0]     we;
  logic [4*R-1:0] rows;
  logic [4*F-1:0] values, stored;
  logic [F-1:0]   first, first_waiting, early;
  logic           is_stored, is_early, is_popped;

  // The first of both; it is removed when nothing is before it.
  always_comb begin
    first = flow_i[0+:F];
    first_waiting = waiting_q[0+:F];
    for (int unsigned p = 4; p > 0; p--) begin
      if (push_i[p-1]) first = flow_i[(p-1)*F+:F];
      if (waits_q[p-1]) first_waiting = waiting_q[(p-1)*F+:F];
    end
  end
  assign is_stored = count_q != '0;
  assign is_early = is_stored || (waits_q != 4'd0);
  assign early = is_stored ? stored[head_q[1:0]*F+:F] : first_waiting;
  assign found_o = is_early || (push_i != 4'd0);
  assign flow_o = is_early ? early : first;
  assign is_popped = pop_i && found_o;

  // x & (x - 1) is without the lowest bit.
  assign waits_d = (pop_i && !is_early) ? (push_i & (push_i - 4'd1)) : push_i;
  assign placed = (pop_i && !is_stored) ? (waits_q & (waits_q - 4'd1)) : waits_q;

  always_comb begin
    logic [F-1:0] place;
    places = 3'd0;
    we = 4'd0;
    rows = '0;
    values = '0;
    for (int unsigned p = 0; p < 4; p++) begin
      place = tail_q + F'(places);
      if (placed[p]) begin
        we[place[1:0]] = 1'b1;
        rows[place[1:0]*R+:R] = place[F-1:2];
        values[place[1:0]*F+:F] = waiting_q[p*F+:F];
        places = places + 3'd1;
      end
    end
  end

  generate
    for (genvar b = 0; b < 4; b++) begin : g_bank
      ram_lut #(.WIDTH(F), .DEPTH(ROWS)) i_bank (
          .clk(clk),
          .we_i(we[b]),
          .waddr_i(rows[b*R+:R]),
          .wdata_i(values[b*F+:F]),
          .raddr_i(head_q[F-1:2]),
          .rdata_o(stored[b*F+:F])
      );
    end
  endgenerate

  logic is_taken;
  assign is_taken = pop_i && is_stored;
  always_ff @(posedge clk) begin
    if (!rst_n) begin
      head_q <= '0;
      tail_q <= '0;
      count_q <= '0;
      waits_q <= '0;
    end else begin
      head_q <= head_q + F'(is_taken);
      tail_q <= tail_q + F'(places);
      count_q <= count_q + (F + 1)'(places) - (F + 1)'(is_taken);
      waits_q <= waits_d;
    end
    waiting_q <= flow_i;
  end

`ifndef SYNTHESIS
  // No flow is in the set twice.
  logic [FLOWS-1:0] held_q, held_d;
  logic             is_twice;
  always_comb begin
    held_d = held_q;
    is_twice = 1'b0;
    for (int unsigned p = 0; p < 4; p++) begin
      if (push_i[p]) begin
        is_twice = is_twice || held_d[flow_i[p*F+:F]];
        held_d[flow_i[p*F+:F]] = 1'b1;
      end
    end
    if (is_popped) held_d[flow_o] = 1'b0;
  end
  always_ff @(posedge clk) begin
    held_q <= rst_n ? held_d : '0;
    // Otherwise a flow is inserted twice.
    if (rst_n) assert (!is_twice);
    // Otherwise the set is too full.
    if (rst_n) assert (count_q <= (F + 1)'(FLOWS));
  end
`endif
endmodule
