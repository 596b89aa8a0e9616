// QPC RAM: the contexts of all queue pairs, in three groups, one for each module that writes while packets flow.
//
// Source: FaSR (2025) section IV-B; mechanism R-19. The first group is written by the SR module, the second (the next
// packet to be sent for the first time) by congestion control, the third is the timer. Each group has one write port,
// and for each module that reads it a copy of its own, so that SR, congestion control and RTO read in every cycle while
// each group is written: a block RAM has two ports. Data is valid in the cycle after the address.
module fasr_qpc (
    input  logic             clk,
    input  logic             write_sr_i,
    input  fasr_pkg::qp_t    write_sr_at_i,
    input  fasr_pkg::sr_t    sr_i,
    input  logic             write_next_i,
    input  fasr_pkg::qp_t    write_next_at_i,
    input  fasr_pkg::psn_t   next_i,
    input  logic             write_timer_i,
    input  fasr_pkg::qp_t    write_timer_at_i,
    input  fasr_pkg::timer_t timer_i,
    // SR: all groups.
    input  fasr_pkg::qp_t    sr_at_i,
    output fasr_pkg::sr_t    sr_sr_o,
    output fasr_pkg::psn_t   sr_next_o,
    output fasr_pkg::timer_t sr_timer_o,
    // Congestion control: UNACK and the next packet.
    input  fasr_pkg::qp_t    cc_at_i,
    output fasr_pkg::psn_t   cc_una_o,
    output fasr_pkg::psn_t   cc_next_o,
    // RTO: UNACK, the next packet and the timer.
    input  fasr_pkg::qp_t    rto_at_i,
    output fasr_pkg::psn_t   rto_una_o,
    output fasr_pkg::psn_t   rto_next_o,
    output fasr_pkg::timer_t rto_timer_o
);
  fasr_ram #(.W(110)) i_sr_sr (
      .clk(clk), .write_i(write_sr_i), .write_at_i(write_sr_at_i), .data_i(sr_i), .read_at_i(sr_at_i), .data_o(sr_sr_o)
  );
  fasr_ram #(.W(24)) i_sr_next (
      .clk(clk), .write_i(write_next_i), .write_at_i(write_next_at_i), .data_i(next_i), .read_at_i(sr_at_i),
      .data_o(sr_next_o)
  );
  fasr_ram #(.W(26)) i_sr_timer (
      .clk(clk), .write_i(write_timer_i), .write_at_i(write_timer_at_i), .data_i(timer_i), .read_at_i(sr_at_i),
      .data_o(sr_timer_o)
  );
  fasr_ram #(.W(24)) i_cc_una (
      .clk(clk), .write_i(write_sr_i), .write_at_i(write_sr_at_i), .data_i(sr_i.una), .read_at_i(cc_at_i),
      .data_o(cc_una_o)
  );
  fasr_ram #(.W(24)) i_cc_next (
      .clk(clk), .write_i(write_next_i), .write_at_i(write_next_at_i), .data_i(next_i), .read_at_i(cc_at_i),
      .data_o(cc_next_o)
  );
  fasr_ram #(.W(24)) i_rto_una (
      .clk(clk), .write_i(write_sr_i), .write_at_i(write_sr_at_i), .data_i(sr_i.una), .read_at_i(rto_at_i),
      .data_o(rto_una_o)
  );
  fasr_ram #(.W(24)) i_rto_next (
      .clk(clk), .write_i(write_next_i), .write_at_i(write_next_at_i), .data_i(next_i), .read_at_i(rto_at_i),
      .data_o(rto_next_o)
  );
  fasr_ram #(.W(26)) i_rto_timer (
      .clk(clk), .write_i(write_timer_i), .write_at_i(write_timer_at_i), .data_i(timer_i), .read_at_i(rto_at_i),
      .data_o(rto_timer_o)
  );
endmodule
