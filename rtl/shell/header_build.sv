// Writes base transport headers to an AXI-Stream, a packet each: 12 bytes, the first in tdata[7:0]. Payload, further
// headers and the ICRC are joined to it by what fetches payload from memory.
//
// The partition key is the default one, 0xffff. Latency: one cycle. With 96 bits or more of data, one header a cycle;
// with 64 bits, one in two cycles.
module header_build #(
    parameter int unsigned DATA_W = 512
) (
    input  logic                clk,
    input  logic                rst_n,
    input  shell_pkg::bth_t     bth_i,
    input  logic                valid_i,
    output logic                ready_o,
    output logic [DATA_W-1:0]   tdata_o,
    output logic [DATA_W/8-1:0] tkeep_o,
    output logic                tlast_o,
    output logic                tvalid_o,
    input  logic                tready_i
);
  localparam int unsigned BITS = 8 * shell_pkg::BTH_BYTES;
  localparam int unsigned BEATS = (BITS + DATA_W - 1) / DATA_W;
  localparam int unsigned BEAT_W = (BEATS == 1) ? 1 : $clog2(BEATS);
  localparam int unsigned LAST_BYTES = shell_pkg::BTH_BYTES - (BEATS - 1) * DATA_W / 8;

  shell_pkg::bth_t         bth_q;
  logic                    valid_q;
  logic [BEAT_W-1:0]       beat_q;
  logic                    is_last;
  logic [BITS-1:0]         in_order;
  logic [BEATS*DATA_W-1:0] bytes;

  // As on the wire: the first byte is the highest one.
  assign in_order = {
    bth_q.opcode,
    bth_q.solicited, bth_q.migrated, bth_q.pad, bth_q.version,
    16'hffff,
    bth_q.fecn, bth_q.becn, 6'd0,
    bth_q.dest_qpn,
    bth_q.ack_request, 7'd0,
    bth_q.psn
  };
  always_comb begin
    bytes = '0;
    for (int unsigned b = 0; b < shell_pkg::BTH_BYTES; b++) bytes[8*b+:8] = in_order[BITS-8-8*b+:8];
  end

  assign is_last = beat_q == BEAT_W'(BEATS - 1);
  assign ready_o = ~valid_q | (tready_i & is_last);
  always_comb begin
    tdata_o = bytes[DATA_W-1:0];
    for (int unsigned b = 1; b < BEATS; b++) if (beat_q == BEAT_W'(b)) tdata_o = bytes[DATA_W*b+:DATA_W];
    tkeep_o = '1;
    if (is_last) for (int unsigned b = 0; b < DATA_W / 8; b++) tkeep_o[b] = b < LAST_BYTES;
  end
  assign tlast_o = is_last;
  assign tvalid_o = valid_q;

  always_ff @(posedge clk) begin
    if (valid_i & ready_o) bth_q <= bth_i;
    if (!rst_n) begin
      valid_q <= 1'b0;
      beat_q  <= '0;
    end else begin
      if (ready_o) valid_q <= valid_i;
      if (valid_q & tready_i) beat_q <= is_last ? '0 : beat_q + 1'b1;
    end
  end
endmodule
