// Collects the first bytes of each packet of an AXI-Stream: its transport headers. The rest of the packet is read and
// dropped; payload takes another way.
//
// A packet is what a UDP datagram to port 4791 carries: it begins with the base transport header. The first byte is
// tdata[7:0], and the bytes of `tkeep_i` are contiguous from bit 0 on. Headers of a packet are complete with its last
// header beat, or with `tlast_i`. `bytes_o` has the first byte lowest; bytes after `length_o` are not those of the packet.
//
// Latency: one cycle after the last beat of the headers. A packet of one beat is accepted in each cycle, as long as
// `ready_i` is high.
module header_collect #(
    parameter int unsigned DATA_W = 512
) (
    input  logic                                   clk,
    input  logic                                   rst_n,
    input  logic [DATA_W-1:0]                      tdata_i,
    input  logic [DATA_W/8-1:0]                    tkeep_i,
    input  logic                                   tlast_i,
    input  logic                                   tvalid_i,
    output logic                                   tready_o,
    output logic [8*shell_pkg::HEADER_BYTES-1:0]   bytes_o,
    output logic [4:0]                             length_o,
    output logic                                   valid_o,
    input  logic                                   ready_i
);
  localparam int unsigned HEADER_BITS = 8 * shell_pkg::HEADER_BYTES;
  localparam int unsigned BEATS = (HEADER_BITS + DATA_W - 1) / DATA_W;
  localparam int unsigned BEAT_W = (BEATS == 1) ? 1 : $clog2(BEATS);
  localparam int unsigned KEEP_W = $clog2(DATA_W / 8) + 1;
  // Enough for the bytes of all header beats.
  localparam int unsigned TOTAL_W = $clog2(BEATS * DATA_W / 8) + 1;
  localparam logic [TOTAL_W-1:0] MAX = TOTAL_W'(shell_pkg::HEADER_BYTES);

  logic [BEATS*DATA_W-1:0] bytes_q, bytes_d;
  logic [TOTAL_W-1:0]      total_q, total_d;
  logic [BEAT_W-1:0]       beat_q, beat_d;
  logic [KEEP_W-1:0]       kept;
  logic                    valid_q, valid_d, rest_q, rest_d;
  logic                    accept, is_complete;

  popcount #(.W(DATA_W / 8)) i_kept (.map_i(tkeep_i), .count_o(kept));

  assign tready_o = rest_q | ~valid_q | ready_i;
  assign accept = tvalid_i & tready_o;
  assign is_complete = (beat_q == BEAT_W'(BEATS - 1)) | tlast_i;

  always_comb begin
    bytes_d = bytes_q;
    total_d = total_q;
    beat_d = beat_q;
    rest_d = rest_q;
    valid_d = valid_q & ~ready_i;
    if (accept & rest_q) rest_d = ~tlast_i;
    if (accept & ~rest_q) begin
      if (beat_q == '0) begin
        bytes_d = '0;
        total_d = '0;
      end
      for (int unsigned b = 0; b < BEATS; b++) if (beat_q == BEAT_W'(b)) bytes_d[DATA_W*b+:DATA_W] = tdata_i;
      total_d = total_d + TOTAL_W'(kept);
      beat_d = is_complete ? '0 : beat_q + 1'b1;
      rest_d = is_complete & ~tlast_i;
      valid_d = is_complete;
    end
  end

  always_ff @(posedge clk) begin
    bytes_q <= bytes_d;
    total_q <= total_d;
    if (!rst_n) begin
      beat_q  <= '0;
      valid_q <= 1'b0;
      rest_q  <= 1'b0;
    end else begin
      beat_q  <= beat_d;
      valid_q <= valid_d;
      rest_q  <= rest_d;
    end
  end

  assign bytes_o = bytes_q[HEADER_BITS-1:0];
  assign length_o = (total_q > MAX) ? MAX[4:0] : total_q[4:0];
  assign valid_o = valid_q;
endmodule
